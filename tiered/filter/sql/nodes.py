"""The pieces of a filter expression: what RocketMQ allows to stand where, and what each piece evaluates to.

Every node is made once, with its checks, and evaluated by a closure. Logic is three-valued, unknown is ``None``. As in
RocketMQ a property that stands alone as a condition is never true (its value is a string), two missing properties are
equal, a number beside a string makes the string a number, and a string that is not a number makes the whole expression fail for
that message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from tiered.errors import BadRequest
from tiered.filter.sql.values import Unevaluable, Value, compare, negate, parse_double

MAX_DEPTH = 100
"""Most nodes inside one another; chains of AND and of OR count once."""

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]


class NodeKind(Enum):
    """What a node is to the rules."""

    PROPERTY = auto()
    CONSTANT = auto()  # a number or a string
    TRUTH = auto()  # TRUE, FALSE, NULL: constant and condition
    NEGATION = auto()  # minus something
    CONDITION = auto()

    @property
    def constant(self) -> bool:
        """Whether its value is written in the expression."""
        return self in (NodeKind.CONSTANT, NodeKind.TRUTH)

    @property
    def condition(self) -> bool:
        """Whether it is true, false or unknown."""
        return self in (NodeKind.TRUTH, NodeKind.CONDITION)


@dataclass(slots=True, eq=False)
class Node:
    """A piece of an expression. ``position``: where it begins, from 0. ``text``: how to name it in an error.

    ``value``: of a constant. ``junction`` and ``parts``: of a chain of AND, of OR, and of NOT. ``names``: properties it
    looks at.
    """

    kind: NodeKind
    evaluate: Evaluate
    position: int
    text: str
    depth: int = 1
    value: Value = None
    junction: str = ""
    parts: list[Node] = field(default_factory=list)
    names: set[str] = field(default_factory=set)


def refuse(message: str, position: int, **fields: object) -> BadRequest:
    """The error for an expression that RocketMQ refuses too; positions count from 1 for people."""
    hint = str(fields.pop("hint"))
    return BadRequest(message, hint=hint, position=position + 1, **fields)


def literal(value: Value, position: int, text: str) -> Node:
    """A constant."""
    kind = NodeKind.TRUTH if value is None or isinstance(value, bool) else NodeKind.CONSTANT
    return Node(kind, lambda _: value, position, text, value=value)


def prop(name: str, position: int) -> Node:
    """The property of this name: its string, or unknown."""
    return Node(NodeKind.PROPERTY, lambda properties: properties.get(name), position, name, names={name})


def condition(node: Node) -> Node:
    """``node`` where a condition must stand: a lone property is false if the message has it, unknown if not."""
    if node.kind.condition:
        return node
    if node.kind is not NodeKind.PROPERTY:
        raise refuse(
            "a filter needs a condition here, not a value",
            node.position,
            found=node.text,
            hint="compare it: price > 10, color = 'red', size IS NOT NULL",
        )
    name = node.text
    return _made(lambda properties: None if properties.get(name) is None else False, node.text, node)


def negative(node: Node, position: int) -> Node:
    """Minus ``node``; unknown unless that is a number."""
    inner = node.evaluate
    made = _made(lambda properties: negate(inner(properties)), f"-{node.text}", node)
    made.kind, made.position = NodeKind.NEGATION, position
    return made


def inverse(node: Node, position: int) -> Node:
    """NOT: unknown stays unknown."""
    inner = (node := condition(node)).evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return None if value is None else not value

    made = _made(evaluate, "NOT …", node)
    made.junction, made.parts, made.position = "NOT", [node], position
    return made


def junction(word: str, left: Node, right: Node) -> Node:
    """``left AND right``, ``left OR right``; a chain of one word is one node. Stops at the first part that decides."""
    left, right = condition(left), condition(right)
    if left.junction != word:
        left = _chain(word, left)
    left.parts.append(right)
    left.names |= right.names
    left.depth = _deeper(max(left.depth, right.depth + 1), left.position)
    return left


def _chain(word: str, first: Node) -> Node:
    parts = [first]
    deciding = word == "OR"

    def evaluate(properties: Properties) -> Value:
        unknown = False
        for part in parts:
            value = part.evaluate(properties)
            if value is None:
                unknown = True
            elif value is deciding:
                return deciding
        return None if unknown else not deciding

    made = _made(evaluate, f"… {word} …", first)
    made.junction, made.parts = word, parts
    return made


def equal(left: Node, right: Node, at: int) -> Node:
    """``left = right``. NULL has no place here, and a truth value on the left needs one on the right."""
    for side in (left, right):
        if side.kind is NodeKind.TRUTH and side.value is None:
            raise refuse(
                "nothing is equal to NULL", side.position, found="NULL", hint="write IS NULL or IS NOT NULL"
            )
    if left.kind is NodeKind.TRUTH and right.kind is NodeKind.CONSTANT:
        raise refuse(
            "a truth value is never equal to a number or a string",
            at,
            found=f"{left.text} = {right.text}",
            hint="compare a property: enabled = TRUE",
        )
    return _equality(left, right, "=")


def is_null(left: Node) -> Node:
    """``left IS NULL``: known to be true or false, whatever ``left`` is."""
    return _equality(left, literal(None, left.position, "NULL"), "IS")


def _equality(left: Node, right: Node, word: str) -> Node:
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        a, b = first(properties), second(properties)
        if a is None:
            return True if b is None else None
        return b is not None and compare(a, b) == 0

    return _made(evaluate, f"{left.text} {word} {right.text}", left, right)


def order(word: str, left: Node, right: Node) -> Node:
    """``left < right`` and its kin: numbers and properties only; two strings are compared as numbers."""
    for side in (left, right):
        if side.kind.condition or (side.kind is NodeKind.CONSTANT and isinstance(side.value, str)):
            raise refuse(
                f"{word} compares numbers only",
                side.position,
                found=side.text,
                hint="strings have = and <>, IN, CONTAINS, STARTSWITH, ENDSWITH; a number is written without quotes",
            )
    first, second, test = left.evaluate, right.evaluate, _ORDERS[word]

    def evaluate(properties: Properties) -> Value:
        a = first(properties)
        if a is None:
            return None
        b = second(properties)
        if b is None:
            return None
        if isinstance(a, str) and isinstance(b, str):
            a, b = parse_double(a), parse_double(b)
        return test(compare(a, b))

    return _made(evaluate, f"{left.text} {word} {right.text}", left, right)


_ORDERS: dict[str, Callable[[int], bool]] = {
    ">": lambda answer: answer > 0,
    ">=": lambda answer: answer >= 0,
    "<": lambda answer: answer < 0,
    "<=": lambda answer: answer <= 0,
}


def between(value: Node, low: Node, high: Node, *, outside: bool) -> Node:
    """``value [NOT] BETWEEN low AND high``; two constants must be in order unless NOT is there."""
    if outside:
        return junction("OR", order("<", value, low), order(">", value, high))
    if low.kind.constant and high.kind.constant:
        _check_bounds(low, high)
    return junction("AND", order(">=", value, low), order("<=", value, high))


def _check_bounds(low: Node, high: Node) -> None:
    try:
        wrong = low.value is None or high.value is None or compare(high.value, low.value) < 0
    except Unevaluable:
        wrong = True
    if wrong:
        raise refuse(
            "the bounds of BETWEEN are not in order",
            low.position,
            found=f"BETWEEN {low.text} AND {high.text}",
            hint="write the smaller number first; BETWEEN compares numbers only",
        )


def membership(left: Node, elements: Sequence[str], *, outside: bool) -> Node:
    """``property [NOT] IN ('a', 'b')``: strings only."""
    if left.kind is not NodeKind.PROPERTY:
        raise refuse(
            "IN needs a property on its left",
            left.position,
            found=left.text,
            hint="write name IN ('a', 'b')",
        )
    name, wanted = left.text, frozenset(elements)

    def evaluate(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else (value in wanted) is not outside

    return _made(evaluate, f"{name} IN (…)", left)


def search(word: str, left: Node, wanted: str, *, outside: bool) -> Node:
    """CONTAINS, STARTSWITH, ENDSWITH: false, with NOT too, for an empty text, for a value that is not a string or missing."""
    inner, found = left.evaluate, _SEARCHES[word]

    def evaluate(properties: Properties) -> Value:
        value = inner(properties) if wanted else None
        return isinstance(value, str) and found(value, wanted) is not outside

    return _made(evaluate, f"{left.text} {word} …", left)


_SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def _made(evaluate: Evaluate, text: str, *children: Node) -> Node:
    depth = _deeper(1 + max(child.depth for child in children), children[0].position)
    names = set().union(*(child.names for child in children))
    shown = text if len(text) <= 80 else text[:79] + "…"
    return Node(NodeKind.CONDITION, evaluate, children[0].position, shown, depth, names=names)


def _deeper(depth: int, position: int) -> int:
    if depth > MAX_DEPTH:
        raise refuse(
            "the filter is nested too deeply",
            position,
            expected=f"at most {MAX_DEPTH} levels",
            hint="use one chain of AND or OR, or IN ('a', 'b', …), instead of nesting",
        )
    return depth
