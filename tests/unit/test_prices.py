"""Price tables: the one that comes with the program, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiered.errors import Invalid, NotFound
from tiered.text.prices import read_prices


def test_the_price_table_that_comes_with_it() -> None:
    table = read_prices(None)
    assert (table.file, table.currency) == ("prices.toml", "USD")
    first = next(iter(table.stores.values()))
    assert (first.name, first.storage_gb_month, first.put_per_1000) == ("s3-standard", 0.023, 0.005)
    assert table.stores["s3-standard-ia"].minimum_object_bytes == 128 * 1024
    assert [price.bytes_per_gb for price in table.stores.values()] == [2**30, 2**30, 2**30, 10**9]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[store.a]\nstorage_gb_month = -1", ("store.a.storage_gb_month", "found=-1")),
        ("[store.a]\nstorage_gb_month = 'x'", ("storage_gb_month", "found=x", "number from 0")),
        ("[store.a]\nstorage_gb_month = nan", ("storage_gb_month", "found=nan")),
        (
            "[store.a]\nstorage_gb_month = 1\nput_per_1000 = 1",
            ("store.a.get_per_1000", "found=nothing", "get_per_1000 = 0.01"),
        ),
        ("[store.a]\nputs_per_1000 = 1", ("store.a.puts_per_1000", "did you mean put_per_1000?")),
        ("[store.a]\nbytes_per_gb = 7", ("store.a.bytes_per_gb", "found=7", "1073741824")),
        ("[store]\na = 7", ("key=store.a", "found=7")),
        ("[stores.a]\nstorage_gb_month = 1", ("key=stores", "did you mean store?")),
        ("currency = 'USD'", ("key=store", "at least one")),
        ("currency = 3\n[store.a]", ("key=currency", "found=3")),
        ("[store.a", ("not TOML",)),
    ],
)
def test_a_bad_price_table(tmp_path: Path, text: str, says: tuple[str, ...]) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(Invalid) as caught:
        read_prices(path)
    assert caught.value.hint
    for part in (str(path), *says):
        assert part in str(caught.value)


def test_a_price_table_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="the file of --prices does not exist"):
        read_prices(tmp_path / "none.toml")
    with pytest.raises(Invalid, match="the file of --prices cannot be read"):
        read_prices(tmp_path)
