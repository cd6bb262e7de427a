"""Archives of the classes that RocketMQ's programs load: a JVM that maps one starts with a third less CPU.

``make`` runs name server, broker, client and ``mqadmin`` once, with each JVM noting what it loads, and lets Java write all
those classes, parsed and verified, into one file beside the jars. A JVM takes a class from there only while Java, class path
and jars are what they were; where the file is absent or unfit everything is only slower. ``python -m tests.kit.classarchive
VERSION DIRECTORY`` is the run that is watched.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.kit import cache

_ROOT = Path(__file__).parents[2]
_LAUNCHER_OPTIONS = "JDK_JAVA_OPTIONS"


def options(version: str) -> list[str]:
    """Options of a JVM whose class path begins with ``cache.class_path(version)``."""
    archive = _path(version)
    if archive is None or not archive.exists():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=error"]


def make(version: str, say: Callable[[str], None] = print) -> None:
    """Make the archive unless it is there; without one, the reason is said. Safe to call from several processes."""
    archive = _path(version)
    if archive is None or archive.exists():
        return
    with cache.locked(f"rocketmq-{version}"):
        if archive.exists():
            return
        say(f"rocketmq-{version}: Java archives the classes that it loads (half a minute) in {archive}")
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix="part-") as part:
            try:
                _write(version, Path(part), archive)
            except (OSError, subprocess.SubprocessError) as error:
                said = getattr(error, "stdout", None) or ""
                say(f"rocketmq-{version}: no archive of classes, JVMs start slower: {error}\n{said[-2000:]}")


def _write(version: str, part: Path, archive: Path) -> None:
    watched = [sys.executable, "-m", "tests.kit.classarchive", version, str(part / "run")]
    _run(watched, {_LAUNCHER_OPTIONS: f"-XX:DumpLoadedClassList={part}/%p.classes"})
    lines = dict.fromkeys(line for names in part.glob("*.classes") for line in names.read_text().splitlines())
    (part / "all").write_text("".join(f"{line}\n" for line in lines if not line.startswith("#")))
    # Of all collectors only G1 writes objects of the heap, too; others read them.
    dump = ["java", "-Xshare:dump", "-Xmx1g", "-XX:+UseG1GC", f"-XX:SharedClassListFile={part / 'all'}"]
    _run([*dump, f"-XX:SharedArchiveFile={part / 'archive'}", "-cp", cache.class_path(version)], {})
    os.replace(part / "archive", archive)


def _run(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(
        command,
        env={**os.environ, **environment},
        cwd=_ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=True,
    )


@functools.cache
def _path(version: str) -> Path | None:
    """Where the archive lies; another Java or other jars give another name. ``None`` where there is no Java."""
    java = shutil.which("java")
    if java is None:
        return None
    runtime = Path(java).resolve().parents[1] / "lib" / "modules"
    facts = [cache.class_path(version)]
    for file in (runtime, *cache.jars(version)):
        with contextlib.suppress(FileNotFoundError):
            stat = file.stat()
            facts.append(f"{file} {stat.st_size} {stat.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
    return cache.rocketmq_directory(version) / f"classes-{digest}.jsa"


def watched(version: str, directory: Path) -> None:
    """Start, use and end each program in good order: only at its end a JVM has noted everything."""
    from tests.kit.broker import Broker, NameServer  # late: they take their options from here
    from tests.kit.mqadmin import MqAdmin

    topic = "Classes"
    names = NameServer(version, directory / "namesrv")
    with names, Broker(version, directory / "broker", names) as broker:
        broker.create_topic(topic)
        client = broker.client()
        client.run("produce", topic=topic, n=100)
        client.run("consume", topic=topic, group="consume", n=100)
        client.run("push", topic=topic, group="push", idle=2)
        client.run("pull", topic=topic, group="pull", start="0", n=100)
        tool = MqAdmin(version, directory / "tool", name_server=names.address)
        tool.run("topicStatus", t=topic)
        tool.run("queryMsgByOffset", t=topic, b=broker.name, i=0, o=0)
        broker.stop()
        names.stop()


if __name__ == "__main__":
    watched(sys.argv[1], Path(sys.argv[2]))
