"""SQL92 filtering: an expression over message properties as a ``RowFilter``."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.codec.record.message import record_properties
from tiered.errors import BadRequest
from tiered.filter.sql.grammar import parse
from tiered.filter.sql.nodes import Node
from tiered.filter.sql.values import Unevaluable

_TAG_PROPERTY = "TAGS"
_KEPT_CHARACTERS = 4096


class SqlFilter:
    """One compiled expression. Immutable, for any thread.

    Rows can be refused by their tag where the expression depends on TAGS: ``TAGS = 'a' AND price > 3`` is surely not
    true of a row with another tag.
    """

    def __init__(self, expression: str, root: Node) -> None:
        self.expression = expression
        self._root = root
        self.columns: tuple[str, ...] = ("tag",) if _TAG_PROPERTY in root.names else ()

    def __repr__(self) -> str:
        return f"SqlFilter({self.expression!r})"

    def may_match(self, rows: Mapping[str, npt.NDArray[Any]], tags: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """By column ``tag`` where the expression looks at TAGS; otherwise every row may match."""
        if not self.columns:
            return np.ones(max(map(len, rows.values()), default=0), np.bool_)
        numbers, row = np.unique(rows["tag"], return_inverse=True)
        possible = np.fromiter((self._may_match_tag(tags[n]) for n in numbers), np.bool_, len(numbers))
        return possible[row]

    def accepts(self, record: memoryview) -> bool:
        """Whether the expression is true of the record's properties."""
        return self.matches(record_properties(record))

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether it is true; unknown, and a comparison that fails (a number with a word), are not."""
        try:
            return self._root.evaluate(properties) is True
        except Unevaluable:
            return False

    def _may_match_tag(self, tag: bytes) -> bool:
        properties = {_TAG_PROPERTY: tag.decode("utf-8", "replace")} if tag else {}
        return _may_be(True, self._root, properties)


def _may_be(truth: bool, node: Node, known: Mapping[str, str]) -> bool:
    """Whether ``node`` can become ``truth`` when its TAGS is as in ``known`` and nothing is known of other properties."""
    if node.names <= {_TAG_PROPERTY}:
        try:
            return node.evaluate(known) is truth
        except Unevaluable:
            return False
    if node.junction == "NOT":
        return _may_be(not truth, node.parts[0], known)
    if node.junction:
        some = any if truth is (node.junction == "OR") else all
        return some(_may_be(truth, part, known) for part in node.parts)
    return True


def sql_filter(expression: str, *, whole: bool = False) -> SqlFilter:
    """The filter that a RocketMQ broker makes of ``expression``. ``BadRequest`` where it refuses: where, and what to write.

    ``whole``: also refuse text behind a complete condition (``a = 1 b = 2``), which RocketMQ silently leaves out.
    """
    if not isinstance(expression, str) or not expression.strip():
        raise BadRequest("an SQL92 filter needs an expression", hint="write a condition, such as price > 10")
    make = _kept if len(expression) <= _KEPT_CHARACTERS else _compile
    return make(expression, whole)


def _compile(expression: str, whole: bool) -> SqlFilter:
    return SqlFilter(expression, parse(expression, whole=whole))


_kept = functools.lru_cache(maxsize=32)(_compile)
