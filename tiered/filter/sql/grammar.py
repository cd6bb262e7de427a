"""The grammar of RocketMQ's filter expressions (selectors in the manner of SQL92), and errors that say where and what.

Precedence, loosest first: OR; AND; ``=  <>  IS [NOT] NULL``; ``> >= < <=``, [NOT] BETWEEN, IN, CONTAINS, STARTSWITH,
ENDSWITH; sign and NOT, which binds its next operand only: ``NOT a = 1`` is ``(NOT a) = 1``. As in RocketMQ the expression
ends where it cannot go on: ``007`` is 0 and then something else.
"""

from __future__ import annotations

import functools
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken

from tiered.errors import BadRequest
from tiered.filter.sql import nodes as sqlnodes
from tiered.filter.sql.nodes import Node, refuse
from tiered.filter.sql.values import LONG_BITS, Long, Unevaluable, Value, parse_whole

MAX_CHARACTERS = 65_536
"""Longest expression; everything that parsing and evaluating cost is bounded by it."""

_GRAMMAR = r"""
start: any

?any: all | any OR all -> either
?all: same | all AND same -> both
?same: rank
    | same "=" rank -> equal
    | same "<>" rank -> unequal
    | same IS NULL -> is_null
    | same IS NOT NULL -> is_not_null
?rank: unary
    | rank (MORE | NOT_LESS | LESS | NOT_MORE) unary -> order
    | rank [NOT] BETWEEN unary AND unary -> between
    | rank [NOT] IN "(" STRING ("," STRING)* ")" -> membership
    | rank [NOT] (CONTAINS | STARTSWITH | ENDSWITH) STRING -> search
?unary: atom
    | "+" unary
    | MINUS unary -> negative
    | NOT unary -> inverse
?atom: STRING -> string
    | WHOLE -> whole
    | FLOAT -> float
    | (TRUE | FALSE | NULL) -> truth
    | NAME -> prop
    | "(" any ")"

%declare AND OR NOT BETWEEN IN IS TRUE FALSE NULL CONTAINS STARTSWITH ENDSWITH
NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
STRING: /'(?:''|[^'])*'/
FLOAT.2: /[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
WHOLE.1: /0|[1-9][0-9]*[lL]?/
MORE: ">"
NOT_LESS: ">="
LESS: "<"
NOT_MORE: "<="
MINUS: "-"
LINE_COMMENT.3: /--[^\n\r]*(?:\r\n|\n|\r)/
BLOCK_COMMENT.3: /\/\*[^*]*\*(?:\*|[^*\/][^*]*\*)*\//
%ignore /[ \t\n\r\f]+/
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""

_WORDS = frozenset(
    ("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "TRUE", "FALSE", "NULL", "CONTAINS", "STARTSWITH", "ENDSWITH")
)
_HINT = "property names have no quotes, strings single ones: color = 'red' AND price BETWEEN 1 AND 5"


class _Builder(Transformer[Token, Node]):
    """Makes nodes while the parser goes on, so that no depth of parentheses needs depth here."""

    def start(self, children: list[Any]) -> Node:
        return sqlnodes.condition(children[0])

    def either(self, children: list[Any]) -> Node:
        return sqlnodes.junction("OR", children[0], children[2])

    def both(self, children: list[Any]) -> Node:
        return sqlnodes.junction("AND", children[0], children[2])

    def equal(self, children: list[Any]) -> Node:
        left, right = children
        return sqlnodes.equal(left, right, left.position)

    def unequal(self, children: list[Any]) -> Node:
        return sqlnodes.inverse(self.equal(children), children[0].position)

    def is_null(self, children: list[Any]) -> Node:
        return sqlnodes.is_null(children[0])

    def is_not_null(self, children: list[Any]) -> Node:
        return sqlnodes.inverse(sqlnodes.is_null(children[0]), children[0].position)

    def order(self, children: list[Any]) -> Node:
        left, word, right = children
        return sqlnodes.order(str(word), left, right)

    def between(self, children: list[Any]) -> Node:
        value, outside, _, low, _, high = children
        return sqlnodes.between(value, low, high, outside=outside is not None)

    def membership(self, children: list[Any]) -> Node:
        left, outside, _, *elements = children
        return sqlnodes.membership(left, [_unquoted(e) for e in elements], outside=outside is not None)

    def search(self, children: list[Any]) -> Node:
        left, outside, word, wanted = children
        return sqlnodes.search(word.upper(), left, _unquoted(wanted), outside=outside is not None)

    def negative(self, children: list[Any]) -> Node:
        return sqlnodes.negative(children[1], _at(children[0]))

    def inverse(self, children: list[Any]) -> Node:
        return sqlnodes.inverse(children[1], _at(children[0]))

    def string(self, children: list[Any]) -> Node:
        return sqlnodes.literal(_unquoted(children[0]), _at(children[0]), _short(children[0]))

    def whole(self, children: list[Any]) -> Node:
        token = children[0]
        return sqlnodes.literal(_whole(token), _at(token), _short(token))

    def float(self, children: list[Any]) -> Node:
        token = children[0]
        return sqlnodes.literal(_float(token), _at(token), _short(token))

    def truth(self, children: list[Any]) -> Node:
        word = children[0].upper()
        value: Value = None if word == "NULL" else word == "TRUE"
        return sqlnodes.literal(value, _at(children[0]), word)

    def prop(self, children: list[Any]) -> Node:
        return sqlnodes.prop(str(children[0]), _at(children[0]))


def parse(expression: str, *, whole: bool = False) -> Node:
    """The condition that ``expression`` is. ``BadRequest`` with ``position`` (from 1), ``found`` and a way out.

    ``whole``: refuse text behind a complete condition, which RocketMQ does not look at.
    """
    if len(expression) > MAX_CHARACTERS:
        raise BadRequest(
            "the filter is too long",
            found=f"{len(expression)} characters",
            expected=f"at most {MAX_CHARACTERS}",
            hint="filter by a property that says in one word what the long list means",
        )
    parser: Any = _parser().parse_interactive(expression)
    token: Token | None = None
    try:
        for token in parser.lexer_thread.lex(parser.parser_state):
            try:
                parser.feed_token(token)
            except UnexpectedToken as error:
                return _end_before(parser, token, error, whole=whole)
        made: Node = parser.feed_eof(token)
    except UnexpectedCharacters as error:
        raise _unreadable(expression, error.pos_in_stream) from error
    except UnexpectedToken as error:
        raise _unexpected(error, len(expression)) from error
    return made


def _end_before(parser: Any, token: Token, error: UnexpectedToken, *, whole: bool) -> Node:
    """The condition that was complete before ``token``."""
    try:
        made: Node = parser.feed_eof(token)
    except UnexpectedToken:
        raise error from None
    if whole:
        raise refuse(
            "text after the end of the filter",
            _at(token),
            found=_short(token),
            hint="join conditions with AND or OR, or remove the rest",
        ) from error
    return made


def _unreadable(expression: str, position: int | None) -> BadRequest:
    position = position or 0
    character = expression[position]
    hint = "close the string with '; a quote inside it is written twice" if character == "'" else _HINT
    if character in "!&|":
        hint = "the operators are <> AND OR NOT"
    return refuse("the filter has an unexpected character", position, found=repr(character), hint=hint)


def _unexpected(error: UnexpectedToken, length: int) -> BadRequest:
    token = error.token
    ended = token.type == "$END"
    found = "the end" if ended else _short(token)
    expected = sorted(_NAMES.get(name, name) for name in error.expected - {"$END"})
    return refuse(
        "the filter ends too early" if ended else "the filter cannot go on like this",
        length if ended else _at(token),
        found=found,
        expected=" ".join(expected),
        hint="equality is one =" if found == "=" else _HINT,
    )


_NAMES = {
    "NAME": "a property",
    "STRING": "'a string'",
    "WHOLE": "a number",
    "FLOAT": "a number with a point",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "PLUS": "+",
    "MINUS": "-",
    "EQUAL": "=",
    "MORE": ">",
    "NOT_LESS": ">=",
    "LESS": "<",
    "NOT_MORE": "<=",
}


@functools.cache
def _parser() -> Lark:
    def recognise(token: Token) -> Token:
        word = token.upper()
        return Token.new_borrow_pos(word, token, token) if word in _WORDS else token

    return Lark(
        _GRAMMAR,
        parser="lalr",
        lexer="basic",
        maybe_placeholders=True,
        transformer=_Builder(),
        lexer_callbacks={"NAME": recognise},
    )


def _at(token: Token) -> int:
    return token.start_pos or 0


def _short(token: Token) -> str:
    return str(token) if len(token) <= 40 else f"{token[:39]}…"


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _whole(token: Token) -> int:
    digits = token.rstrip("lL")
    try:
        value = parse_whole(digits, LONG_BITS)
    except Unevaluable:
        raise refuse(
            "a whole number is beyond 64 bits",
            _at(token),
            found=_short(token),
            hint="write at most 9223372036854775807, or a number with a point",
        ) from None
    return value if value < 1 << 31 else Long(value)


def _float(token: Token) -> float:
    value = float(token)
    if value == 0 or value == float("inf"):
        raise refuse(
            "a number with a point must lie between 4.9E-324 and 1.8E308",
            _at(token),
            found=_short(token),
            hint="write 0 for zero",
        )
    return value
