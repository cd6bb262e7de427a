"""RocketMQ's own filter classes, asked from Python: ``tests/kit/java/Filters.java``."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Mapping, Sequence

from tests.kit import cache

SOURCE = cache.JAVA_DIRECTORY / "Filters.java"
REFUSED = "refused"


def evaluate(version: str, expressions: Sequence[str], maps: Sequence[Mapping[str, str]]) -> list[str]:
    """Per expression ``refused``, or a letter per property map: T, F, N (unknown), X (the evaluation failed).

    One JVM for all of them, about 1.5 s to start: it compiles the source itself.
    """
    lines = [" ".join(["P", *(_encoded(text) for item in one.items() for text in item)]) for one in maps]
    lines += [f"E {_encoded(expression)}" for expression in expressions]
    jars = cache.rocketmq_directory(version) / "lib"
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss8m"]
    done = subprocess.run(
        [*command, "-cp", f"{jars}/*", str(SOURCE)],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    answers = done.stdout.split("\n")[:-1]
    if done.returncode != 0 or len(answers) != len(expressions):
        raise RuntimeError(f"Filters.java ended with {done.returncode}: {done.stderr[-2000:]}")
    return answers


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
