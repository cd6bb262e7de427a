"""RocketMQ's gRPC client before its Proxy: how fast it sends, and how fast it receives what it sent."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.kit import cache
from tests.kit.process import Child, ChildError, Scratch

SOURCE = Path(__file__).parent / "java" / "GrpcBench.java"
TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class GrpcRates:
    """Messages a second."""

    sent: float
    received: float


def grpc_rates(work: Path, endpoint: str, topic: str, **options: object) -> GrpcRates:
    """Of the client for Java, to the Proxy at ``endpoint``; ``options``: those of ``GrpcBench.java``."""
    classes, jars = work / "grpc-classes", cache.proxy_directory() / "grpc-java"
    command = ["javac", "-nowarn", "-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", str(classes), str(SOURCE)]
    subprocess.run(command, check=True)
    scratch = Scratch(work / "grpc-tmp")
    scratch.make()
    java = ["java", "-Xmx768m", "-Xms256m", "-XX:+UseSerialGC", scratch.java_option, f"-Duser.home={work}"]
    told = {"endpoint": endpoint, "topic": topic, "group": "bench_grpc", **options}
    arguments = [f"{key}={value}" for key, value in told.items()]
    child = Child(
        "bench grpc", [*java, "-cp", f"{classes}:{jars}/*", "GrpcBench", *arguments], work / "grpc.out"
    )
    try:
        code = child.wait(TIMEOUT_SECONDS)
    finally:
        scratch.remove()
    if code:
        raise ChildError(f"bench grpc ended with {code}:\n{child.output()}")
    found = json.loads(child.output().strip().splitlines()[-1])
    return GrpcRates(found["sent"] / found["send_seconds"], found["received"] / found["receive_seconds"])
