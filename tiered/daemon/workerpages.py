"""The metrics of several workers as one page: every sample of a worker says whose it is (label ``worker``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tiered.metricregistry import MetricRegistry


class WorkersMetrics(MetricRegistry):
    """What the process that looks after the workers knows itself."""

    def __init__(self) -> None:
        super().__init__()
        self.workers = self._gauge(
            "gateway_workers", "Workers of the gateway, by state: there, missing", "state"
        )
        self.ends = self._counter("gateway_worker_ends", "Workers that ended without being told to")


def merged(own: bytes, workers: Mapping[int, bytes]) -> bytes:
    """``own`` and the pages of the workers, by index. The lines of one metric stand together, as the format wants it."""
    families: dict[str, tuple[list[str], list[str]]] = {}
    for index, page in ((None, own), *sorted(workers.items())):
        for name, comment, line in _lines(page.decode()):
            heads, samples = families.setdefault(name, ([], []))
            if not comment:
                samples.append(line if index is None else _labelled(line, index))
            elif line not in heads:
                heads.append(line)
    return "".join(f"{line}\n" for both in families.values() for part in both for line in part).encode()


def _lines(text: str) -> Iterator[tuple[str, bool, str]]:
    """Name of the metric, whether it is a comment, and the line: samples follow the comments of their metric."""
    name = ""
    for line in text.splitlines():
        if line.startswith("#"):
            name = line.split(" ", 3)[2]
        if line:
            yield name, line.startswith("#"), line


def _labelled(sample: str, index: int) -> str:
    """``a{b="c"} 1`` → ``a{worker="0",b="c"} 1``. A name has no brace or space; a value of a label may have both."""
    end = next(at for at, letter in enumerate(sample) if letter in "{ ")
    rest = sample[end:]
    labels = "," + rest[1:] if rest[0] == "{" else "}" + rest
    return f'{sample[:end]}{{worker="{index}"{labels}'
