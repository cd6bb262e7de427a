"""A push consumer made with RocketMQ's own client for Go, driven from Python. Its lines are those of the Java client."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from tests.kit import cache
from tests.kit.client import read_lines
from tests.kit.process import Child, ChildError

_NUMBERS = itertools.count(1)


class GoConsumer:
    """One consumer, started at once. ``n``: messages after which it ends, a little later; ``orderly``: each queue in order;
    ``rate``: messages a second, one at a time; ``cached``: most that wait in it; ``since_ms``: where a new group begins."""

    def __init__(
        self,
        work: Path,
        name_server: str,
        topic: str,
        group: str,
        *,
        n: int = 0,
        orderly: bool = False,
        rate: int = 0,
        cached: int = 1000,
        since_ms: int = -1,
        sub: str = "*",
    ) -> None:
        stem = f"go-consumer-{next(_NUMBERS)}"
        self.path = work / f"{stem}.jsonl"
        command = [
            str(cache.go_consumer()), "-namesrv", name_server, "-topic", topic, "-group", group,
            "-n", str(n), "-sub", sub, "-out", str(self.path), "-rate", str(rate),
            "-cached", str(cached), "-since", str(since_ms), *(["-orderly"] if orderly else []),
        ]  # fmt: skip
        self.child = Child("goconsume", command, work / f"{stem}.log")

    def taken(self) -> int:
        """Messages it has written down so far."""
        return self.path.read_bytes().count(b"\n") if self.path.exists() else 0

    def wait_taken(self, count: int, seconds: float = 60.0) -> None:
        """Wait until that many are written down."""
        self.child.wait_until(lambda: self.taken() >= count, seconds, f"{count} messages")

    def lines(self, seconds: float = 120.0) -> list[dict[str, Any]]:
        """Wait for its end; the messages in the order in which they were handed out."""
        code = self.child.wait(seconds)
        if code:
            raise ChildError(f"the Go consumer ended with {code}:\n{self.child.output()}")
        return list(read_lines(self.path))

    def summary(self) -> dict[str, Any]:
        """What it said at its end."""
        return dict(json.loads(self.child.output().strip().splitlines()[-1]))

    def kill(self) -> None:
        """kill -9; fine if it is gone."""
        self.child.kill()
