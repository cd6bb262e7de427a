"""Which pages there are, and their parameters: declared once, checked and described from the same declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tiered.gateway.httphead import HttpRefusal, Request

MAX_TEXT_CHARACTERS = 8192
MAX_OFFSET = (1 << 63) - 1


class Kind(Enum):
    """What a parameter is."""

    TEXT = "string"
    WHOLE = "integer"
    FLAG = "boolean"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. ``default`` ``None`` and not ``required``: absent means absent."""

    name: str
    kind: Kind
    description: str
    in_path: bool = False
    required: bool = False
    default: int | bool | None = None
    low: int = 0
    high: int = MAX_OFFSET

    @property
    def expected(self) -> str:
        """What may be given, for people."""
        match self.kind:
            case Kind.WHOLE:
                return f"a whole number from {self.low} to {self.high}"
            case Kind.FLAG:
                return "true or false"
            case Kind.TEXT:
                return f"1 to {MAX_TEXT_CHARACTERS} characters"

    def value(self, text: str) -> str | int | bool:
        """The value that ``text`` means; ``HttpRefusal`` names parameter, value and what to give."""
        match self.kind:
            case Kind.WHOLE if text.isascii() and text.isdigit() and len(text) < 20:
                if self.low <= int(text) <= self.high:
                    return int(text)
            case Kind.FLAG if text in ("true", "false"):
                return text == "true"
            case Kind.TEXT if 0 < len(text) <= MAX_TEXT_CHARACTERS:
                return text
        raise refused(self.name, text, self.expected, "give one of these")


@dataclass(frozen=True, slots=True)
class Route:
    """A page: its address with ``{names}``, what it is, its parameters."""

    name: str
    template: str
    summary: str
    parameters: tuple[Parameter, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """The pieces of the template between slashes."""
        return tuple(self.template.split("/")[1:])

    def match(self, path: tuple[str, ...]) -> dict[str, str] | None:
        """The texts of ``path`` for the names, if the address is this page's."""
        found: dict[str, str] = {}
        if len(path) != len(self.parts):
            return None
        for part, text in zip(self.parts, path, strict=True):
            if part.startswith("{"):
                found[part[1:-1]] = text
            elif part != text:
                return None
        return found


Values = Mapping[str, str | int | bool | None]

_TOPIC = Parameter("topic", Kind.TEXT, "name of the topic", in_path=True, required=True)
_QUEUE = Parameter("queue", Kind.WHOLE, "queue id", in_path=True, required=True, high=(1 << 31) - 1)

ROUTES = (
    Route("page", "/", "A page for people that reads the others."),
    Route("openapi", "/openapi.json", "This description."),
    Route(
        "topics",
        "/v1/topics",
        "Archived topics, in order of their names.",
        (Parameter("system", Kind.FLAG, "RocketMQ's own topics too", default=False),),
    ),
    Route(
        "queues", "/v1/topics/{topic}/queues", "Archived queues of a topic, with their offsets.", (_TOPIC,)
    ),
    Route(
        "messages",
        "/v1/topics/{topic}/queues/{queue}/messages",
        "Messages of a queue in order. A long search ends early: go on at next_offset until end is true.",
        (
            _TOPIC,
            _QUEUE,
            Parameter("offset", Kind.WHOLE, "where to begin; absent: at the first message, or at time"),
            Parameter(
                "time", Kind.WHOLE, "begin at the first message stored at or after this, ms since 1970"
            ),
            Parameter("count", Kind.WHOLE, "most messages", default=32, low=1, high=100_000),
            Parameter("tag", Kind.TEXT, "only messages with this tag; several: a || b"),
            Parameter("sql", Kind.TEXT, "only messages whose properties satisfy this SQL92 expression"),
        ),
    ),
    Route(
        "query",
        "/v1/query",
        "The newest messages of a topic that have a key, in the order in which they were stored.",
        (
            Parameter("topic", Kind.TEXT, "name of the topic", required=True),
            Parameter("key", Kind.TEXT, "one of the KEYS of the messages", required=True),
            Parameter("unique", Kind.FLAG, "key is the id made by the client (UNIQ_KEY)", default=False),
            Parameter(
                "count",
                Kind.WHOLE,
                "most messages; fewer if they are more than 64 MiB",
                default=32,
                low=1,
                high=256,
            ),
            Parameter("begin", Kind.WHOLE, "stored at or after this, ms since 1970"),
            Parameter("end", Kind.WHOLE, "stored at or before this, ms since 1970"),
        ),
    ),
)


def find(request: Request) -> tuple[Route, Values]:
    """The page that is asked for and its checked parameters; absent ones have their default."""
    for route in ROUTES:
        in_path = route.match(request.path)
        if in_path is None:
            continue
        if request.method not in ("GET", "HEAD"):
            raise HttpRefusal(
                405, "pages here can only be read", method=request.method, hint="use GET", allow="GET, HEAD"
            )
        return route, _values(route, in_path, request.parameters)
    raise HttpRefusal(
        404,
        "there is no such page",
        found="/" + "/".join(request.path)[:80],
        expected=" ".join(route.template for route in ROUTES),
        hint="/openapi.json describes them; a slash or % in a topic's name is written %2F or %25",
    )


def _values(route: Route, in_path: Mapping[str, str], given: Mapping[str, str]) -> Values:
    known = {parameter.name for parameter in route.parameters if not parameter.in_path}
    for name in given:
        if name not in known:
            expected = ", ".join(sorted(known)) or "none"
            raise refused(
                name[:40], given[name], f"parameters of this page: {expected}", "remove or rename it"
            )
    values: dict[str, str | int | bool | None] = {}
    for parameter in route.parameters:
        text = (in_path if parameter.in_path else given).get(parameter.name)
        if text is None and parameter.required:
            raise refused(parameter.name, None, parameter.expected, f"add {parameter.name}=…")
        values[parameter.name] = parameter.default if text is None else parameter.value(text)
    return values


def refused(parameter: str, value: object, expected: str, fix: str, *, status: int = 400) -> HttpRefusal:
    """The refusal of one parameter: which, what it was, what it may be, what to do."""
    shown = value[:80] if isinstance(value, str) else value
    return HttpRefusal(
        status,
        f"the parameter {parameter} is {'missing' if value is None else 'not usable'}",
        parameter=parameter,
        value=shown,
        expected=expected,
        hint=fix,
    )
