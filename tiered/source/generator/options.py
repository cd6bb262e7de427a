"""What the generator is asked to write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tiered.errors import Invalid

MAX_QUEUES = 1 << 24
"""Each takes some ten bytes of memory."""


@dataclass(frozen=True, slots=True)
class GeneratorOptions:
    """What to write. ``queues`` is per topic; ``rate`` in messages/s (``None``: as fast as possible).

    ``tags`` must be equally long in UTF-8. ``vary_bodies``: eight sizes from half of ``body_bytes`` up to it.
    ``ahead``: keep the next commitlog file allocated, as a running broker does. ``zipf``: once each queue has a message, the
    k-th busiest gets a share in proportion to 1 / k^``zipf``; ``None``: round robin. ``consume_queues``: also write a file of
    units for each queue, as a broker does, and as nothing that archives needs: of a million queues they are a million files.
    """

    store_dir: Path
    messages: int = 100_000
    topics: tuple[str, ...] = ("DemoTopic",)
    queues: int = 4
    body_bytes: int = 1024
    rate: float | None = None
    seed: int = 0
    file_bytes: int = 1 << 30
    queue_file_units: int = 300_000
    start_physical_offset: int = 0
    start_queue_offset: int = 0
    compressible: bool = True
    vary_bodies: bool = False
    tags: tuple[str, ...] = ("TagA", "TagB", "TagC", "TagD", "TagE")
    born_host: str = "10.1.2.3:50001"
    store_host: str = "127.0.0.1:10911"
    ahead: bool = True
    zipf: float | None = None
    consume_queues: bool = True

    def __post_init__(self) -> None:
        if self.start_physical_offset % self.file_bytes:
            raise Invalid(
                "the first physical offset must be the start of a commitlog file",
                found=self.start_physical_offset,
                expected=f"a multiple of {self.file_bytes}",
            )
        if (
            not self.topics
            or self.queues < 1
            or self.body_bytes < 0
            or len({len(t.encode()) for t in self.tags}) != 1
        ):
            raise Invalid(
                "the generator needs topics, queues, a body size of 0 or more, and tags of one length",
                topics=len(self.topics),
                queues=self.queues,
                body_bytes=self.body_bytes,
                tags=self.tags,
            )
        if len(self.topics) * self.queues > MAX_QUEUES or (self.zipf is not None and self.zipf <= 0):
            raise Invalid(
                "the generator fills a bounded number of queues, by a Zipf exponent above 0",
                found=f"{len(self.topics)} topics of {self.queues} queues, exponent {self.zipf}",
                expected=f"at most {MAX_QUEUES} queues in all",
            )


def topic_names(count: int, prefix: str = "Topic") -> tuple[str, ...]:
    """``count`` topic names of equal length."""
    width = len(str(max(count - 1, 0)))
    return tuple(f"{prefix}{i:0{width}d}" for i in range(count))
