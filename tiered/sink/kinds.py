"""Kinds of destinations: found by name among entry points, so that another package brings its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, runtime_checkable

from tiered.errors import Invalid, did_you_mean, not_installed
from tiered.sink.base import Sink
from tiered.sink.order import SinkOrder
from tiered.sink.shaping import ShapedKind

REGISTERED = "tiered.sinks"
"""The group of entry points: a name of a kind, and the class, called without arguments, that is its ``SinkKind``."""


@dataclass(frozen=True, slots=True)
class SinkPlace:
    """Whose log a sink is opened for. ``epoch``: of the writer that opens it; a later one fences an earlier one at destinations
    that can. ``name``: of the sink, the same ever after. ``sink_id``: with ``archive_id`` it tells this sink from all others,
    and from those that were removed and had its name: a position that a destination keeps is of one of them alone.
    ``anew``: an operator has it begin again, so that what it gave before may be gone. ``part``: what of a backfill is given
    through this opening, beside others; empty: all that the sink is given. ``renamed``: what the order makes of a topic's name:
    messages come by the new one, while positions tell of queues as the source names them."""

    archive_id: bytes
    cluster: str
    broker: str
    epoch: int
    name: str
    anew: bool = False
    part: str = ""
    renamed: Callable[[str], str] = str
    sink_id: bytes = b""

    @property
    def short_id(self) -> str:
        """The first 12 digits of ``sink_id``: what destinations and messages there are told of it."""
        return self.sink_id.hex()[:12]

    @property
    def keeps_as(self) -> str:
        """Under which name a destination keeps the position: parts of a backfill have one each."""
        return f"{self.name}.{self.part}" if self.part else self.name


class SinkKind(Protocol):
    """A kind of destination."""

    def check(self, order: SinkOrder) -> None:
        """``Invalid``, naming the option, where it is known before anything is opened that this order cannot work; may ask the
        destination (``Unavailable``). Called when a sink is added, on the operator's host, and before each opening."""
        ...

    def open(self, order: SinkOrder, place: SinkPlace) -> Sink:
        """A destination for one process. ``Unavailable``, ``Invalid``, ``Fenced``, as of ``Sink``."""
        ...


@runtime_checkable
class PartedKind(Protocol):
    """A kind whose destinations may be given to by several openings at once, of different ``SinkPlace.part``, each queue by
    one: what a backfill by Spark needs. Positions that the destination keeps are each part's own (``keeps_as``)."""

    def check_parts(self, order: SinkOrder) -> bool:
        """Whether each message comes once whatever ends a task; else a part that is tried again is given again. ``Invalid``
        where this order's destination cannot be given to so."""
        ...


@runtime_checkable
class LastingKind(Protocol):
    """A kind with options that stay as they are for a sink's life."""

    def lasting(self) -> tuple[str, ...]:
        """Options that say where messages lie, in which form and order, or how the position is kept: with another value what
        was given and what comes would not belong together."""
        ...


def changed_options(order: SinkOrder, given: Mapping[str, str], without: Collection[str]) -> SinkOrder:
    """The order with these options in place of those of before, and without some. ``Invalid`` for one that lasts, or is not
    there to be taken away; for what the kind does not take, as of ``SinkKind.check``."""
    kind = find_kind(order.kind)
    assert isinstance(kind, LastingKind)  # which all are, with the shapes
    for name in without:
        if name not in order.options:
            raise Invalid(
                "the sink has no such option", field=f"options.{name}", expected=", ".join(sorted(order.options)),
                hint=did_you_mean(name, order.options, "its options: "),
            )  # fmt: skip
    options = {name: value for name, value in {**order.options, **given}.items() if name not in without}
    for name in kind.lasting():
        if options.get(name) != order.options.get(name):
            raise Invalid(
                "this option lasts as long as its sink", field=f"options.{name}",
                found=options.get(name, "its default"), expected=order.options.get(name, "its default"),
                hint="add another sink, which begins at the archive's first message or with --from-now, and remove this one",
            )  # fmt: skip
    made = replace(order, options=options)
    kind.check(made)
    return made


def known_kinds() -> tuple[str, ...]:
    """The names of all kinds that are installed."""
    return tuple(sorted({found.name for found in entry_points(group=REGISTERED)}))


def find_kind(name: str) -> SinkKind:
    """The kind of a name, with the shapes that every kind has. ``Invalid`` with the list of those that are there; or if what it
    needs is not installed."""
    found: EntryPoint | None = next(iter(entry_points(group=REGISTERED, name=name)), None)
    if found is None:
        known = known_kinds()
        raise Invalid(
            "no such kind of sink", field="kind", found=name,
            expected=", ".join(known) or "none is installed",
            hint=did_you_mean(name, known, "kinds: "),
        )  # fmt: skip
    try:
        made: SinkKind = found.load()()
    except ImportError as error:
        # Kinds that another package brings have no extra of ours.
        extra = name if found.module.startswith("tiered.") else ""
        raise not_installed(f"sink kind '{name}'", error.name or str(error), extra) from error
    return ShapedKind(made)
