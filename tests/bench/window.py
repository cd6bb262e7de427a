"""Record how a read-ahead window moves while one reader reads on, and plot it: ``python -m tests.bench.window [docs]``.

One cold reader over a link with 20 ms of latency and a bounded rate. On the way the store pushes back once, and once the reader
pauses until what was fetched ahead has expired. The plot's x axis is what was read, so that it looks alike on any machine.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kit.assemble import assemble
from tests.kit.fetchscene import ORDERS, READERS, Scene, pull, scene, window_bytes
from tiered.clock import SystemClock
from tiered.errors import Unavailable
from tiered.fetch.fetcher import Fetcher
from tiered.metrics import Metrics
from tiered.provider.base import Provider
from tiered.provider.wrap import Wrapped
from tiered.settings import KIB, MIB, Fetch

LATENCY_SECONDS = 0.02
BYTES_PER_SECOND = 400 * MIB
MESSAGES, MESSAGE_BYTES = 28_000, 4_000
PUSH_BACK_AT, PAUSE_AT = 0.35, 0.65
WIDTH, HEIGHT, LEFT, BOTTOM = 900, 340, 60, 50


@dataclass(frozen=True, slots=True)
class Sample:
    """After one read: bytes read so far, the window, bytes of requests in flight, seconds since the start."""

    read: int
    window: int
    in_flight: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at ``read`` bytes."""

    read: int
    what: str


class Link(Wrapped):
    """Latency per request and one rate for all; ``refuse`` requests are answered *slow down*."""

    def __init__(self, inner: Provider) -> None:
        super().__init__(inner)
        self._wire = threading.Lock()
        self._count = threading.Lock()
        self.in_flight = 0
        self.refuse = 0

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Any:
        """As the link allows."""
        with self._count:
            self.in_flight += length or 0
            refused, self.refuse = self.refuse > 0, max(0, self.refuse - 1)
        try:
            time.sleep(LATENCY_SECONDS)
            if refused:
                raise Unavailable("slow down")
            with self._wire:
                time.sleep((length or 0) / BYTES_PER_SECOND)
            return self.inner.get(key, start, length)
        finally:
            with self._count:
                self.in_flight -= length or 0


def record(messages: int = MESSAGES) -> tuple[list[Sample], list[Event]]:
    """One run."""
    with (
        tempfile.TemporaryDirectory(prefix="tiered-window-") as directory,
        ThreadPoolExecutor(16) as pool,
        scene(Path(directory), block_bytes=256 * KIB, object_bytes=64 * MIB) as s,
    ):
        archived(s, messages)
        link = Link(s.provider.inner)
        settings = Fetch(budget_bytes=48 * MIB, request_bytes=4 * MIB, cache_expiry_ms=1000)
        fetcher = Fetcher(link, s.objects(), settings, SystemClock(), pool=pool, metrics=Metrics())
        try:
            return read_on(s, fetcher, link)
        finally:
            fetcher.close()


def archived(s: Scene, messages: int) -> None:
    """Fill the archive, a commitlog file at a time."""
    s.daemon.close()
    s.broker.file_bytes = 1 << 26
    s.send(messages, size=MESSAGE_BYTES, noise=True, flush=False)
    s.daemon = assemble(
        s.broker.store, s.provider, s.clock, seed=3,
        dispatch={"block_bytes": 256 * KIB, "object_bytes": 64 * MIB, "group_commit_bytes": 64 * MIB, "inline_bytes": 0},
    )  # fmt: skip
    s.daemon.settle()


def read_on(s: Scene, fetcher: Fetcher, link: Link) -> tuple[list[Sample], list[Event]]:
    """Read the queue to its end, with the two disturbances."""
    total = sum(map(len, s.raws()))
    samples: list[Sample] = []
    events: list[Event] = []
    state, offset, done, started = s.state, 0, 0, time.monotonic()
    due = [(PUSH_BACK_AT, "the store pushes back"), (PAUSE_AT, "the reader pauses, read-ahead expires")]
    while True:
        try:
            got = fetcher.read(state, pull(offset, 256), 1)
        except Unavailable:
            continue
        if got.next_offset == offset:
            return samples, events
        offset = got.next_offset
        done += sum(map(len, got.records))
        window = window_bytes(fetcher, READERS, ORDERS) or 0
        samples.append(Sample(done, window, link.in_flight, time.monotonic() - started))
        if due and done >= due[0][0] * total:
            _, what = due.pop(0)
            events.append(Event(done, what))
            if due:
                link.refuse = 2
            else:
                time.sleep(1.5)


def svg(samples: Sequence[Sample], events: Sequence[Event]) -> str:
    """The plot: window as a line, bytes in flight as an area."""
    top = max(max(x.window, x.in_flight) for x in samples) * 1.1
    end = samples[-1].read

    def place(read: float, value: float) -> str:
        return f"{LEFT + read / end * (WIDTH - LEFT - 20):.1f},{HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - 30):.1f}"

    line = " ".join(place(x.read, x.window) for x in samples)
    area = " ".join([place(0, 0), *(place(x.read, x.in_flight) for x in samples), place(end, 0)])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<polygon points="{area}" fill="#cfe3f5"/>',
        f'<polyline points="{line}" fill="none" stroke="#0b5394" stroke-width="2"/>',
    ]
    step = next(s for s in (1, 2, 5, 10, 20, 50) if top / MIB / s <= 8) * MIB
    for value in range(0, int(top), step):
        x, y = place(0, value).split(",")
        parts.append(f'<text x="{float(x) - 8}" y="{float(y) + 4}" text-anchor="end">{value // MIB}</text>')
        parts.append(f'<line x1="{x}" y1="{y}" x2="{WIDTH - 20}" y2="{y}" stroke="#e6e6e6"/>')
    for read in range(0, end, 16 * MIB):
        x, y = place(read, 0).split(",")
        parts.append(f'<text x="{x}" y="{float(y) + 18}" text-anchor="middle">{read // MIB}</text>')
    for number, event in enumerate(events):
        x, y = place(event.read, 0).split(",")
        parts.append(f'<line x1="{x}" y1="20" x2="{x}" y2="{y}" stroke="#b45f06" stroke-dasharray="4 3"/>')
        parts.append(f'<text x="{float(x) + 5}" y="{32 + 14 * number}" fill="#b45f06">{event.what}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">MiB read</text>')
    parts.append(
        f'<text x="{LEFT + 8}" y="18"><tspan fill="#0b5394">window</tspan> and '
        '<tspan fill="#6fa8dc">bytes in flight</tspan>, MiB</text>'
    )
    return "\n".join([*parts, "</svg>", ""])


def ascii_plot(samples: Sequence[Sample], *, columns: int = 72, rows: int = 12) -> str:
    """The window alone, for a terminal: MiB over what was read."""
    end, top = samples[-1].read, max(x.window for x in samples)
    heights = [0] * columns
    for x in samples:
        heights[min(columns - 1, x.read * columns // end)] = round(x.window / top * rows)
    for at in range(1, columns):
        heights[at] = heights[at] or heights[at - 1]
    lines = []
    for row in range(rows, 0, -1):
        label = f"{top * row / rows / MIB:6.1f} |" if row % 3 == 0 else "       |"
        lines.append(label + "".join("#" if height >= row else " " for height in heights).rstrip())
    lines.append("       +" + "-" * columns)
    lines.append(f"        0 {f'{end / MIB:.0f} MiB read':>{columns - 2}}")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Record, plot, 0."""
    samples, events = record()
    print(ascii_plot(samples))
    for event in events:
        print(f"at {event.read / MIB:.0f} MiB: {event.what}")
    if arguments:
        target = Path(arguments[0]) / "read-ahead.svg"
        target.write_text(svg(samples, events))
        print(f"wrote {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
