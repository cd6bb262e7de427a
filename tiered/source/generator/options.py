"""What the generator is asked to write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tiered.errors import Invalid


@dataclass(frozen=True, slots=True)
class GeneratorOptions:
    """What to write. ``queues`` is per topic; ``rate`` in messages/s (``None``: as fast as possible).

    ``tags`` must be equally long in UTF-8. ``vary_bodies``: eight sizes from half of ``body_bytes`` up to it.
    ``ahead``: keep the next commitlog file allocated, as a running broker does.
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


def topic_names(count: int, prefix: str = "Topic") -> tuple[str, ...]:
    """``count`` topic names of equal length."""
    width = len(str(max(count - 1, 0)))
    return tuple(f"{prefix}{i:0{width}d}" for i in range(count))
