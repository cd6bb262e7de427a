"""Pages declared once: their addresses and parameters, matched, checked and described from the same declaration."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote_to_bytes

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tiered.http.refusals import bad_request, refused_parameter

MAX_TEXT_CHARACTERS = 8192
MAX_OFFSET = (1 << 63) - 1
Values = Mapping[str, str | int | bool | None]
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class ParameterKind(Enum):
    """What a parameter is."""

    TEXT = "string"
    WHOLE = "integer"
    FLAG = "boolean"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. ``default`` ``None`` and not ``required``: absent means absent. ``choices``: the only texts, if any."""

    name: str
    kind: ParameterKind
    description: str
    in_path: bool = False
    required: bool = False
    default: int | bool | str | None = None
    low: int = 0
    high: int = MAX_OFFSET
    choices: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """What may be given, for people."""
        match self.kind:
            case ParameterKind.WHOLE:
                return f"a whole number from {self.low} to {self.high}"
            case ParameterKind.FLAG:
                return "true or false"
            case ParameterKind.TEXT if self.choices:
                return " or ".join(self.choices)
            case ParameterKind.TEXT:
                return f"1 to {MAX_TEXT_CHARACTERS} characters"

    def value(self, text: str) -> str | int | bool:
        """The value that ``text`` means; ``HttpRefusal`` names parameter, value and what to give."""
        match self.kind:
            case ParameterKind.WHOLE if text.isascii() and text.isdigit() and len(text) < 20:
                if self.low <= int(text) <= self.high:
                    return int(text)
            case ParameterKind.FLAG if text in ("true", "false"):
                return text == "true"
            case ParameterKind.TEXT if self.choices:
                if text in self.choices:
                    return text
            case ParameterKind.TEXT if 0 < len(text) <= MAX_TEXT_CHARACTERS:
                return text
        raise refused_parameter(self.name, text, self.expected, "give one of these")


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A page, or what else can be asked of its address: the address with ``{names}``, what it is, its parameters.

    ``headers``: header fields that it minds, each with what it means. ``body``: what the body is, if it takes one, of at most
    ``most_body_bytes``.
    """

    name: str
    template: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    most_body_bytes: int = 0

    def route(self, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
        """The page as Starlette's router knows it; it can only be read."""
        return one_address([self], endpoint)

    def values(self, request: Request) -> Values:
        """The checked parameters of a request; absent ones have their default."""
        return _values(
            self, request.path_params, _parameters(request.scope["query_string"].decode("latin-1"))
        )


def one_address(routes: Sequence[PageRoute], endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
    """All that can be asked of one address, as Starlette's router knows it."""
    path = re.sub(r"{(\w+)}", r"{\1:part}", routes[0].template)
    return Route(path, endpoint, methods=[route.method for route in routes])


def sent_path(raw: bytes) -> str:
    """A path with its escapes decoded, except those of / and %. ``HttpRefusal`` if it is not UTF-8."""
    parts = (_decoded(part) for part in raw.decode("latin-1").split("/"))
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


class _Part(Convertor[str]):
    """What stands between two slashes of ``sent_path``, or nothing."""

    regex = "[^/]*"

    def convert(self, value: str) -> str:
        return value.replace("%2F", "/").replace("%25", "%")

    def to_string(self, value: str) -> str:
        return value.replace("%", "%25").replace("/", "%2F")


register_url_convertor("part", _Part())


def _values(route: PageRoute, in_path: Mapping[str, str], given: Mapping[str, str]) -> Values:
    known = {parameter.name for parameter in route.parameters if not parameter.in_path}
    for name in given:
        if name not in known:
            expected = ", ".join(sorted(known)) or "none"
            raise refused_parameter(
                name[:40], given[name], f"parameters of this page: {expected}", "remove or rename it"
            )
    values: dict[str, str | int | bool | None] = {}
    for parameter in route.parameters:
        text = (in_path if parameter.in_path else given).get(parameter.name)
        if text is None and parameter.required:
            raise refused_parameter(parameter.name, None, parameter.expected, f"add {parameter.name}=…")
        values[parameter.name] = parameter.default if text is None else parameter.value(text)
    return values


def _parameters(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in query.split("&"):
        if not item:
            continue
        name, _, value = item.replace("+", " ").partition("=")
        name = _decoded(name)
        if name in found:
            raise bad_request(
                "a parameter is given twice", close=False, parameter=name[:40], hint="give it once"
            )
        found[name] = _decoded(value)
    return found


def _decoded(text: str) -> str:
    try:
        if _BAD_ESCAPE.search(text) is None:
            return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        pass
    raise bad_request(
        "the address is not percent-encoded UTF-8",
        close=False,
        found=text[:40],
        hint="write % as %25, other special characters as % and two hex digits",
    )
