"""A broker process that tears: it maps commitlog files and stores each record in pieces, out of order, with pauses.

``python tearing_writer.py STORE SEED RECORDS FILE_BYTES BEGIN``. It continues a store whose ``first_life`` left whole records
of equal size behind the point where this life begins, and holds ``lock`` as a broker does. Every record finished is a line
``offset size crc`` in ``STORE/written``.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import sys
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.kit.brokerlog import BrokerLog

LEFTOVER_BODY = 60


def first_life(store: Path, file_bytes: int) -> int:
    """Fill most of the first file with whole old records; returns where power was lost."""
    log = BrokerLog(store, file_bytes=file_bytes, time_ms=1_600_000_000_000)
    while log.position < file_bytes - 600:
        log.append(bytes(LEFTOVER_BODY), properties=b"KEYS\x01old\x02")
    lost = list(log.records)[10]
    kept = [f"{at} {len(data)} {zlib.crc32(data)}" for at, data in log.records.items() if at < lost]
    (store / "written").write_text("".join(line + "\n" for line in kept))
    log.write(lost, b"\0" * 8)
    return lost


class Tearer:
    """Stores bytes into mapped files, piece by piece."""

    def __init__(self, log: BrokerLog, chance: random.Random) -> None:
        self.log = log
        self.chance = chance
        self.base = -1
        self.map: mmap.mmap | None = None

    def at(self, offset: int) -> mmap.mmap:
        base = offset // self.log.file_bytes * self.log.file_bytes
        if self.map is None or base != self.base:
            self.log.create(base)
            self.log.create(base + self.log.file_bytes)
            with self.log.path(base).open("r+b") as file:
                self.base, self.map = base, mmap.mmap(file.fileno(), self.log.file_bytes)
        return self.map

    def store(self, offset: int, data: bytes) -> None:
        target, place = self.at(offset), offset % self.log.file_bytes
        cuts = sorted(self.chance.sample(range(1, len(data)), min(len(data) - 1, self.chance.randrange(6))))
        pieces = list(zip([0, *cuts], [*cuts, len(data)], strict=True))
        if self.chance.random() < 0.3:
            self.chance.shuffle(pieces)
        slow = self.chance.random() < 0.02
        for start, end in pieces:
            target[place + start : place + end] = data[start:end]
            if slow and end != len(data):
                time.sleep(0.08)  # longer than the reader waits before it looks again
            elif self.chance.random() < 0.05:
                time.sleep(0.001)


def main(store: Path, seed: int, records: int, file_bytes: int, begin: int) -> None:
    chance = random.Random(seed)
    lock = os.open(store / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.lockf(lock, fcntl.LOCK_EX)
    (store / "abort").write_text(str(os.getpid()))
    log = BrokerLog(store, file_bytes=file_bytes, position=begin)
    tearer = Tearer(log, chance)
    log.write = tearer.store  # type: ignore[method-assign]
    with (store / "written").open("a", buffering=1) as written:
        for number in range(records):
            log.time_ms = time.time_ns() // 1_000_000
            size = LEFTOVER_BODY if chance.random() < 0.7 or number < 20 else chance.randrange(400)
            data = log.append(chance.randbytes(size), properties=b"KEYS\x01new\x02")
            written.write(f"{log.position - len(data)} {len(data)} {zlib.crc32(data)}\n")
            if chance.random() < 0.02:
                time.sleep(0.07)  # idle: the last record has to prove itself
    time.sleep(0.3)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(a) for a in sys.argv[2:6]))
