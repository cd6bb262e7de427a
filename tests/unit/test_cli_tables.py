"""Tables on terminals: one line a row at 80 columns, and a word about what was left out. Seen through a real pty."""

from __future__ import annotations

import io

from rich.console import Console

from tiered.cli import queues, read, topics
from tiered.text.human import Kind
from tiered.text.output import Column
from tiered.text.people import People
from tiered.text.tables import FLEXIBLE_LEAST, Fit, fit, shortened

TIME_MS = 1_763_691_939_761


def terminal(width: int) -> tuple[People, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    consoles = [
        Console(file=f, width=width, height=40, force_terminal=True, color_system=None, highlight=False)
        for f in (out, err)
    ]
    return People(*consoles), out, err


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


ORDERS = (
    "OrderEvents",
    3,
    0,
    1_234_567,
    1_234_567,
    1_234_580,
    1_234_567,
    5 << 30,
    1,
    TIME_MS,
    TIME_MS,
    [[5, 8, "jumped"]],
)


def test_queues_at_80_columns() -> None:
    speaks, out, err = terminal(80)
    speaks.table(queues.COLUMNS, [ORDERS] * 3)
    shown = lines(out.getvalue())
    assert len(shown) == 4, "one line a row"
    assert all(len(line) <= 80 for line in shown)
    for word in ("topic", "queue", "max", "commit", "dispatch", "messages"):
        assert word in shown[0]
    assert "1,234,580" in shown[1]
    assert "oldest" not in shown[0]
    left_out = err.getvalue()
    assert "oldest" in left_out
    assert "--json" in left_out


def test_queues_at_200_columns_shows_everything() -> None:
    speaks, out, err = terminal(200)
    speaks.table(queues.COLUMNS, [ORDERS])
    header, row = lines(out.getvalue())
    assert all((c.heading or c.name) in header for c in queues.COLUMNS)
    assert "2025-11-21T02:25:39.761Z" in row
    assert err.getvalue() == ""


def test_topics_and_messages_at_80_columns() -> None:
    speaks, out, _ = terminal(80)
    speaks.table(topics.COLUMNS, [("OrderEvents", 4, 6753, 9_000_000, TIME_MS, TIME_MS, 0)])
    header, row = lines(out.getvalue())
    assert "newest" in header
    assert "2025-11-21T02:25:39Z" in row, "times lose their milliseconds before columns go"
    speaks, out, _ = terminal(80)
    message = (
        7,
        TIME_MS,
        "TagC",
        "order-2",
        777,
        "FD00000000000000000000000000000",
        "0A00000100002A9F0000000000000000",
        "body " * 40,
    )
    speaks.table(read.COLUMNS, [message])
    header, row = lines(out.getvalue())
    assert "body body" in row
    assert row.endswith("…")
    assert len(row) <= 80


def test_what_fits_is_left_alone() -> None:
    names, rows = ["a", "b"], [["1", "2"]]
    options = {"times": [False, False], "less": [0, 1], "flexible": None}
    assert fit(names, rows, width=4, **options) == Fit((0, 1), False, None)  # type: ignore[arg-type]
    assert fit(names, rows, width=3, **options) == Fit((0,), False, None)  # type: ignore[arg-type]
    assert fit(names, rows, width=0, **options) == Fit((0,), False, None)  # type: ignore[arg-type]


def test_columns_go_in_order() -> None:
    names = ["aaaa", "bbbb", "cccc", "dddd"]
    widths = {
        width: fit(names, [], times=[False] * 4, less=[0, 2, 3, 1], flexible=None, width=width).shown
        for width in (22, 21, 15, 9)
    }
    assert widths == {22: (0, 1, 2, 3), 21: (0, 1, 3), 15: (0, 3), 9: (0,)}


def test_a_flexible_column_takes_what_is_left() -> None:
    rows = [["x" * 10, "y" * 500]]
    for width, room in ((60, 48), (100, 88), (20, FLEXIBLE_LEAST)):
        found = fit(["a", "b"], rows, times=[False, False], less=[0, 0], flexible=1, width=width)
        assert found == Fit((0, 1), False, room)


def test_wide_characters_count_twice() -> None:
    rows = [["消" * 10, "x"]]
    assert fit(["a", "b"], rows, times=[False] * 2, less=[0, 1], flexible=None, width=23).shown == (0, 1)
    assert fit(["a", "b"], rows, times=[False] * 2, less=[0, 1], flexible=None, width=22).shown == (0,)


def test_times_without_milliseconds() -> None:
    assert shortened("2025-11-21T02:25:39.761Z") == "2025-11-21T02:25:39Z"
    assert shortened("-") == "-"


def test_the_layout_is_made_once() -> None:
    """Rows come in batches; columns do not change between them."""
    speaks, out, err = terminal(40)
    columns = (Column("n", kind=Kind.COUNT), Column("text", less=1))
    speaks.table(columns, ((i, "short" if i < 1000 else "long" * 20) for i in range(1500)))
    header = [line for line in lines(out.getvalue()) if line.split()[0] == "n"]
    assert {tuple(line.split()) for line in header} == {("n", "text")}
    assert err.getvalue() == ""
