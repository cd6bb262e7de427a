"""Numbers in the fields of a remoting header: what fits, what does not, and how Java writes them."""

from __future__ import annotations

import pytest

from tiered.codec.remoting.codes import number_field
from tiered.errors import Invalid


@pytest.mark.parametrize("bits", [32, 64])
def test_numbers_end_where_javas_do(bits: int) -> None:
    high = (1 << bits - 1) - 1
    for value in (0, 1, 9, 10 ** (len(str(high)) - 1) - 1, 10 ** (len(str(high)) - 1), high, -high - 1, -1):
        assert number_field({"queueId": str(value)}, "queueId", bits) == value
    for value in (high + 1, -high - 2, 10 ** len(str(high)) - 1, 10 ** len(str(high))):
        with pytest.raises(Invalid, match="not a number") as raised:
            number_field({"queueId": str(value)}, "queueId", bits)
        assert raised.value.fields["field"] == "queueId"
        assert raised.value.fields["expected"] == f"int{bits}"


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1_0", "0x1", "１", "²", "1.0", "--1", "NaN", "9" * 4096])
@pytest.mark.parametrize("bits", [32, 64])
def test_what_java_would_not_read_is_refused(text: str, bits: int) -> None:
    with pytest.raises(Invalid):
        number_field({"queueId": text}, "queueId", bits)


def test_a_field_that_is_missing_is_named() -> None:
    assert number_field({}, "queueId", 32, 7) == 7
    with pytest.raises(Invalid, match="missing") as raised:
        number_field({"queueOffset": "1"}, "queueId", 32)
    assert raised.value.fields == {"field": "queueId"}
