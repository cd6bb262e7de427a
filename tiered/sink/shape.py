"""What an order changes about messages before they are given: declared, and nothing that could run code of somebody's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tiered.codec.record.layout import MAX_V1_TOPIC_BYTES
from tiered.errors import Invalid
from tiered.filter.base import RowFilter
from tiered.filter.sql.expression import sql_filter
from tiered.filter.tags import tag_filter
from tiered.sink.bodies import BODY, FIELDS, MESSAGE, SCHEMA, BodyShape, body_shape
from tiered.sink.deadletters import DeadLetters, dead_letters_of
from tiered.sink.optionvalues import switch_of
from tiered.sink.order import SinkOrder

PREFIX = "shape."
TAGS, SQL, DROP_BODY, PROPERTIES, RENAME = (
    "shape.tags", "shape.sql", "shape.drop_body", "shape.properties", "shape.rename",
)  # fmt: skip
DEAD_LETTERS = "shape.dead_letters"
NAMES = (TAGS, SQL, DROP_BODY, PROPERTIES, RENAME, BODY, SCHEMA, MESSAGE, FIELDS, DEAD_LETTERS)


@dataclass(frozen=True, slots=True)
class MessageShape:
    """``filters``: a message has to pass all; ``properties``: names that are kept, ``None``: all; ``renames``: topics, or
    beginnings of topics where both end in ``*``, the first that fits counts; ``body``: how bodies are read, ``None``: they are
    given as they are."""

    filters: tuple[RowFilter, ...] = ()
    drop_body: bool = False
    properties: frozenset[str] | None = None
    renames: tuple[tuple[str, str], ...] = field(default=())
    body: BodyShape | None = None

    @property
    def rebuilds(self) -> bool:
        """Whether records are others behind it, and not only fewer."""
        return self.body is not None or self.drop_body or self.properties is not None or bool(self.renames)

    def topic(self, topic: str) -> str:
        """What a topic is called at the destination. ``Invalid``: it would be longer than a topic may be."""
        for old, new in self.renames:
            if old == topic:
                return new
            if old.endswith("*") and topic.startswith(old[:-1]):
                made = new[:-1] + topic[len(old) - 1 :]
                if len(made.encode()) > MAX_V1_TOPIC_BYTES:
                    raise Invalid(
                        "a topic's new name is too long", field=f"options.{RENAME}", topic=topic, found=made,
                        expected=f"≤ {MAX_V1_TOPIC_BYTES} bytes", hint="rename this topic by a pair of its own",
                    )  # fmt: skip
                return made
        return topic


def shape_of(order: SinkOrder) -> MessageShape:
    """What the options ``shape.…`` of an order say. ``Invalid`` for one that is not known or does not fit."""
    options = {name: value for name, value in order.options.items() if name.startswith(PREFIX)}
    unknown = [name for name in options if name not in NAMES]
    if unknown:
        raise Invalid(
            "there is no such shape",
            field=f"options.{unknown[0]}",
            found=unknown[0],
            expected=", ".join(NAMES),
        )
    found: list[RowFilter] = []
    for name, made in ((TAGS, tag_filter), (SQL, sql_filter)):
        if name in options:
            try:
                one = made(options[name])
            except Invalid as error:
                raise Invalid(
                    error.message, hint=error.hint, field=f"options.{name}", **error.fields
                ) from error
            if one is not None:
                found.append(one)
    kept = options.get(PROPERTIES)
    body, dropped = body_shape(options), switch_of(order, DROP_BODY, default=False)
    if body is not None and dropped:
        raise Invalid(
            "bodies are either decoded or dropped", field=f"options.{DROP_BODY}", hint="leave one out"
        )
    if body is None and DEAD_LETTERS in options:
        raise Invalid(
            "these are of bodies that do not fit", field=f"options.{DEAD_LETTERS}", hint=f"{BODY}=json"
        )
    return MessageShape(
        tuple(found),
        dropped,
        None if kept is None else frozenset(part.strip() for part in kept.split(",") if part.strip()),
        _renames(options.get(RENAME, "")),
        body,
    )


def misfits_of(order: SinkOrder, *, make: bool = False) -> DeadLetters | None:
    """Where messages go whose bodies do not fit; ``None``: the sink stops at the first. ``Invalid``."""
    location = order.options.get(DEAD_LETTERS)
    if location is None:
        return None
    return dead_letters_of(replace(order, options={"dead_letters": location}), make=make)


def without_shape(order: Mapping[str, str]) -> dict[str, str]:
    """Options that are the kind's own."""
    return {name: value for name, value in order.items() if not name.startswith(PREFIX)}


def _renames(text: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for part in text.split(","):
        if not part.strip():
            continue
        old, equals, new = (piece.strip() for piece in part.partition("="))
        both = old.endswith("*") == new.endswith("*")
        if not equals or not old or not new or not both or "*" in old[:-1] or "*" in new[:-1]:
            raise Invalid(
                "a renaming is a pair of topics", field=f"options.{RENAME}", found=part.strip()[:200],
                hint=f"{RENAME}=Orders=OrdersCopy,Pay*=mirror-Pay*",
            )  # fmt: skip
        if len(new.encode()) > MAX_V1_TOPIC_BYTES:
            raise Invalid("a topic's new name is too long", field=f"options.{RENAME}", found=new)
        pairs.append((old, new))
    names = [new for _, new in pairs]
    twice = next((new for new in names if names.count(new) > 1), None)
    if twice is not None:
        raise Invalid(
            "two topics would become one, and their queues' offsets would mean nothing",
            field=f"options.{RENAME}", found=twice, hint="give each a name of its own",
        )  # fmt: skip
    return tuple(pairs)
