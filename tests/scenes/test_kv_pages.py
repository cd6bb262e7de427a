"""Answers of a view are bounded in bytes, whatever its entries are."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kit.kvscene import NAMESPACE, KeyValueScene
from tiered.errors import Invalid
from tiered.keyvalue import KeyPage
from tiered.view import view as views


def test_a_page_ends_where_its_values_are_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "PAGE_BYTES", 250)
    scene = KeyValueScene(tmp_path, file_bytes=1 << 16, with_archive=False)
    keys = [b"k%02d" % number for number in range(50)]
    for key in keys:
        scene.put(NAMESPACE, key, key * 33)
    scene.put(NAMESPACE, b"z", b"x" * 1000)
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        found, page = [], KeyPage((), b"\0", 0)
        while page.after is not None:
            page = view.page(NAMESPACE, b"", after=page.after, count=40)
            found.append([entry.key for entry in page.entries])
        assert [key for some in found for key in some] == [*keys, b"z"]
        assert {len(some) for some in found[:-1]} == {3}
        assert len(view.get_many(NAMESPACE, [*keys[:2], b"none"])) == 3
        for many in (keys[:3], [*[b"none"] * 40, *keys[:3]], [keys[0], b"z"]):
            with pytest.raises(Invalid, match="too many bytes"):
                view.get_many(NAMESPACE, many)
        [large] = view.get_many(NAMESPACE, [b"z"])  # one is always answered
        assert large is not None
        assert len(large.value) == 1000
