"""Filters by tag, as brokers do them: ``*``, or tags with ``||`` between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.codec.javahash import java_hash
from tiered.codec.record.message import record_properties
from tiered.errors import BadRequest
from tiered.filter.base import RowFilter
from tiered.filter.sql.expression import SqlFilter, sql_filter

__all__ = ["SqlFilter", "TagFilter", "row_filter", "sql_filter", "tag_filter"]

ALL_TAGS = "*"
MAX_CHARACTERS = 65_536
_JAVA_BLANKS = "".join(map(chr, range(0x21)))


class TagFilter:
    """Messages with one of these tags. Immutable, for any thread.

    A broker compares hash codes only and leaves the rest to its client; here the tag itself decides, so colliding tags are not
    fetched. ``codes``: their hash codes, as in the consume queue.
    """

    columns: tuple[str, ...] = ("tag",)

    def __init__(self, tags: Sequence[str]) -> None:
        self.tags = frozenset(tags)
        self.codes = frozenset(map(java_hash, tags))
        self._codes = np.array(sorted(self.codes), np.int32)

    def __repr__(self) -> str:
        return f"TagFilter({' || '.join(sorted(self.tags))!r})"

    def may_match(self, rows: Mapping[str, npt.NDArray[Any]], tags: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """By column ``tag``, which is exact; by the low 32 bits of ``tags_code`` when only that is given."""
        if "tag" in rows:
            wanted = [number for number, tag in enumerate(tags) if self._wants(tag)]
            return np.isin(rows["tag"], wanted)
        return np.isin(rows["tags_code"].astype(np.int32), self._codes)

    def accepts(self, record: memoryview) -> bool:
        """Whether the record's tag is one of them."""
        return record_properties(record).get("TAGS") in self.tags

    def _wants(self, tag: bytes) -> bool:
        return bool(tag) and tag.decode("utf-8", "replace") in self.tags


def tag_filter(expression: str) -> TagFilter | None:
    """The filter of a subscription ``a || b``; ``None`` for ``*`` and for nothing: every message.

    Blanks around tags do not count. As in RocketMQ a blank expression matches nothing, and one of bars only is refused:
    ``BadRequest``.
    """
    if expression in ("", ALL_TAGS):
        return None
    if len(expression) > MAX_CHARACTERS:
        raise BadRequest(
            "the tag expression is too long",
            found=f"{len(expression)} characters",
            expected=f"at most {MAX_CHARACTERS}",
            hint="subscribe to * and filter in the consumer, or give related messages one tag",
        )
    pieces = expression.split("||")
    if not any(pieces):
        raise BadRequest(
            "the tag expression has no tag",
            found=repr(expression[:40]),
            hint="write one tag, several as a || b, or * for all",
        )
    tags = [tag for piece in pieces if (tag := piece.strip(_JAVA_BLANKS))]
    return TagFilter(tags)


def row_filter(expression: str | None, expression_type: str | None) -> RowFilter | None:
    """The filter of a subscription as clients send it: type ``TAG`` (also empty) or ``SQL92``. ``None``: every message.

    ``BadRequest`` for an expression that RocketMQ refuses, or another type.
    """
    if expression_type in (None, "", "TAG"):
        return tag_filter(expression or "")
    if expression_type == "SQL92":
        return sql_filter(expression or "")
    raise BadRequest(
        "unknown type of filter expression",
        found=repr(str(expression_type)[:40]),
        expected="TAG or SQL92",
        hint="set the type to TAG or SQL92",
    )
