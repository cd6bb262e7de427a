"""Two speakers, one answer; errors in one paragraph."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator

import numpy as np
import pytest
from rich.console import Console

from tiered.errors import Corrupt, Refused
from tiered.text.human import Kind, human, moment, printable, size
from tiered.text.machine import Machine
from tiered.text.output import Column
from tiered.text.people import People
from tiered.text.speaker import speaker
from tiered.text.values import time_ms

COLUMNS = (
    Column("topic"),
    Column("bytes", "stored", Kind.SIZE),
    Column("store_time_ms", "stored at", Kind.TIME),
)
ROWS = [("orders", 1536, 1_700_000_000_123), ("a\x1b[31mb", None, None)]


def people(*, terminal: bool = False, width: int = 60) -> tuple[People, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    consoles = [
        Console(file=f, width=width, height=20, force_terminal=terminal, highlight=False, markup=False)
        for f in (out, err)
    ]
    return People(*consoles), out, err


def test_a_table_for_people() -> None:
    speaks, out, _ = people()
    speaks.table(COLUMNS, iter(ROWS))
    text = out.getvalue()
    assert "stored at" in text
    assert "1.5 KiB" in text
    assert "2023-11-14T22:13:20.123Z" in text
    assert "\x1b" not in text
    assert "a\\x1b[31mb" in text


def test_a_table_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    Machine().table(COLUMNS, iter(ROWS))
    assert json.loads(capsys.readouterr().out) == [
        {"topic": "orders", "bytes": 1536, "store_time_ms": 1_700_000_000_123},
        {"topic": "a\x1b[31mb", "bytes": None, "store_time_ms": None},
    ]
    Machine().table(COLUMNS, [])
    assert json.loads(capsys.readouterr().out) == []


def test_machine_tables_are_written_as_rows_come(capsys: pytest.CaptureFixture[str]) -> None:
    def rows() -> Iterator[tuple[int]]:
        yield (1,)
        yield (2,)
        assert '{"n": 1}' in capsys.readouterr().out
        yield (3,)

    Machine().table(["n"], rows())


def test_long_cells_are_whole_when_nobody_watches() -> None:
    speaks, out, _ = people(width=40)
    speaks.table(["key", "value"], [("k" * 60, "v" * 300), ("\u6d88" * 50, "x")])
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert "v" * 300 in lines[1]
    assert "\u6d88" * 50 in lines[2]


def test_many_rows_keep_their_order() -> None:
    speaks, out, _ = people()
    speaks.table([Column("number")], ((i,) for i in range(2500)))
    numbers = [int(line) for line in out.getvalue().split() if line.isdigit()]
    assert numbers == list(range(2500))


def test_records_and_lines(capsys: pytest.CaptureFixture[str]) -> None:
    speaks, out, _ = people()
    speaks.record({"lag_bytes": 2048, "ready": True, "inner": {"epoch": 3}}, kinds={"lag_bytes": Kind.SIZE})
    speaks.lines(["one", "two [bold]\x07"])
    text = out.getvalue()
    assert "lag bytes" in text
    assert "2.0 KiB" in text
    assert "yes" in text
    assert "epoch" in text
    assert "two [bold]\\x07" in text
    Machine().record({"n": np.int64(5), "b": b"\xff", "e": Kind.SIZE, "s": "ü"})
    assert json.loads(capsys.readouterr().out) == {"n": 5, "b": "\\xff", "e": "size", "s": "ü"}


def test_errors_for_people() -> None:
    speaks, out, err = people()
    speaks.error(Refused("declined", where="s3://b", expected="x", found="[bold]y", hint="set z"))
    assert out.getvalue() == ""
    assert err.getvalue() == "error: declined (where=s3://b, expected=x, found=[bold]y)\n  → set z\n"


def test_errors_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    Machine().error(Corrupt("bad sum", hint="look there", key="a/b", position=5))
    captured = capsys.readouterr()
    assert captured.out == ""
    told = json.loads(captured.err)["error"]
    assert told == {
        "kind": "Corrupt",
        "message": "bad sum",
        "fields": {"key": "a/b", "position": "5"},
        "hint": "look there",
        "exit_code": 8,
    }


def test_a_surprise_is_short_unless_debug() -> None:
    try:
        raise ZeroDivisionError("division by zero")
    except ZeroDivisionError as error:
        speaks, _, err = people()
        speaks.error(error)
        assert "Traceback" not in err.getvalue()
        assert "--debug" in err.getvalue()
        speaks.error(error, debug=True)
        assert "Traceback" in err.getvalue()


def test_progress_only_on_a_terminal() -> None:
    for terminal in (False, True):
        speaks, out, err = people(terminal=terminal)
        with speaks.progress("reading", 10) as advance:
            advance(10)
        assert out.getvalue() == ""
        assert ("reading" in err.getvalue()) is terminal
    with Machine().progress("reading", 10) as advance:
        advance(5)


def test_raw_bytes(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    speaker(json_output=False).raw(memoryview(b"\x00\xff\n"))
    speaker(json_output=True).raw(b"\r")
    assert capsysbinary.readouterr().out == b"\x00\xff\n\r"


def test_values_for_people() -> None:
    assert [size(n) for n in (0, 1023, 1024, 5 << 30, 3 << 50)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 GiB",
        "3072.0 TiB",
    ]
    assert moment(1 << 62) == str(1 << 62)
    assert human(None) == "-"
    assert human(1_234_567, Kind.COUNT) == "1,234,567"
    assert human(0.25, Kind.SECONDS) == "0.250 s"
    assert human(b"\xffa") == "\\xffa"
    assert human(["a", "b"]) == "a, b"
    assert printable("a\tb") == "a\\tb"
    assert human([[5, 1000, "jumped"], [2000, 2001, ""]], Kind.RANGES) == "[5, 1,000) jumped; [2,000, 2,001)"
    gap = {"lineage": 1, "start": 0, "end": 4096, "reason": "corrupt: zeros"}
    assert human([gap], Kind.RANGES) == "[0, 4,096) corrupt: zeros (lineage 1)"
    assert human({"epoch": 1234, "last_commit_ms": 1_700_000_000_123}) == (
        "epoch 1,234, last commit ms 2023-11-14T22:13:20.123Z"
    )
    assert time_ms(moment(1_700_000_000_123)) == 1_700_000_000_123, "what is shown is what flags take"


def test_seconds_and_dates_without_dashes_are_no_milliseconds() -> None:
    assert [time_ms(text) for text in ("0", "1000", "1700000000123")] == [0, 1000, 1_700_000_000_123]
    assert [time_ms(text) for text in ("20260101", "1700000000", "99999999999")] == [None] * 3


def test_numbers_of_a_record_are_written_alike() -> None:
    speaks, out, _ = people()
    values = {
        "end_offset": 1_410_000,
        "hold_bytes": 2048,
        "wait_ms": 1500,
        "on": True,
        "inner": {"seq": 12_345},
        "gaps": [],
    }
    speaks.record(values)
    rows = [line.rsplit(None, 1) for line in out.getvalue().splitlines()]
    assert [row[-1].strip() for row in rows] == [
        "1,410,000",
        "KiB",
        "1,500",
        "yes",
        "inner",
        "12,345",
        "none",
    ]


def test_notes_and_errors_break_between_words() -> None:
    """On a terminal; whatever else reads them gets one line."""
    words = "dispatch offsets are kept in the daemon's state directory; name it with --state or --store"
    for terminal in (True, False):
        speaks, _, err = people(terminal=terminal, width=40)
        speaks.note(words)
        speaks.error(Refused(words, hint=words))
        shown = re.sub(r"\x1b\[[0-9;]*m", "", err.getvalue()).splitlines()
        assert (len(shown) == 3) is not terminal
        if terminal:
            assert all(len(line) <= 40 for line in shown)
            assert set(" ".join(shown).split()) == {*words.split(), "error:", "→"}
