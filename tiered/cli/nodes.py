"""``tiered nodes``: read nodes that have announced themselves."""

from __future__ import annotations

from collections.abc import Iterator

from tiered.cli.access import archive_settings
from tiered.cli.members import is_silent, look
from tiered.cli.options import ArchiveUrl, ConfigFile, JsonFlag, SetValues, output
from tiered.membership.base import Members, gone_after
from tiered.text.human import Kind
from tiered.text.output import Column

COLUMNS = (
    Column("node"),
    Column("address"),
    Column("state"),
    Column("version", less=2),
    Column("wire", less=3),
    Column("capacity", kind=Kind.COUNT, less=1),
    Column("renewed_seconds_ago", "renewed s ago"),
    Column("lease_seconds", "lease s", less=2),
    Column("said", less=1, flexible=True),
)


def command(
    config: ConfigFile = None, archive: ArchiveUrl = None, sets: SetValues = None, json: JsonFlag = False
) -> None:
    """Read nodes of the archive: state, address, version, and when each renewed its lease.

    Looked at are their leases in the bucket. A node is silent that has not renewed its lease for longer than it holds, by the
    clock of the bucket. Whether gateways ask a node is on their /status.
    """
    out = output(json)
    settings = archive_settings(out, config, archive, sets).settings
    found = look(settings)
    out.table(COLUMNS, _rows(found))
    if not (found.there or found.troubles):
        out.note("nobody has announced itself in the bucket: read nodes do with serve.membership=bucket")


def _rows(found: Members) -> Iterator[tuple[object, ...]]:
    for member in sorted(found.there, key=lambda member: member.card.name):
        card, age = member.card, member.age_seconds
        holds = gone_after(card)
        state = "silent" if is_silent(member) else card.state.value
        yield (
            card.name, card.address, state, card.version, f"{card.wire_from}–{card.wire_to}", card.capacity,
            None if age is None else round(max(age, 0.0), 1), holds, None,
        )  # fmt: skip
    for name, trouble in sorted(found.troubles.items()):
        yield name, None, "damaged", None, None, None, None, None, trouble
