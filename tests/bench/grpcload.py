"""RocketMQ's gRPC client before its Proxy: how fast it sends, and how fast it receives what it sent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.bench.javaprogram import JavaProgram
from tests.kit import cache


@dataclass(frozen=True, slots=True)
class GrpcRates:
    """Messages a second."""

    sent: float
    received: float


def grpc_rates(work: Path, endpoint: str, topic: str, **options: object) -> GrpcRates:
    """Of the client for Java, to the Proxy at ``endpoint``; ``options``: those of ``GrpcBench.java``."""
    program = JavaProgram("GrpcBench", cache.proxy_directory() / "grpc-java", work)
    found = program.run(endpoint=endpoint, topic=topic, group="bench_grpc", **options)
    return GrpcRates(found["sent"] / found["send_seconds"], found["received"] / found["receive_seconds"])
