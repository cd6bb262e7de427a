"""Archives of the classes that RocketMQ's programs and Spark load: a JVM that maps one starts with a third to two thirds less
CPU.

``make`` runs name server, broker, client and ``mqadmin`` once, with each JVM noting what it loads, and lets Java write all
those classes, parsed and verified, into one file beside the jars. A JVM takes a class from there only while Java, class path
and jars are what they were; where the file is absent or unfit everything is only slower. ``python -m tests.kit.classarchive
VERSION DIRECTORY`` is the run that is watched. Spark's jars lie in each checkout's own environment: their archive is written by
one JVM at its end (``written_at_exit``), when tests first need it.
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
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.kit import cache

KEPT_SECONDS = 7 * 86_400.0
"""Archives that Java writes at its end go when nobody has used them for so long."""

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
    """Where the archive lies; another Java or other jars give another name. ``None`` where there is no Java, or no jars."""
    jars = cache.jars(version)
    name = _name("classes", jars) if jars else None
    return None if name is None else cache.rocketmq_directory(version) / name


def _name(of: str, jars: Sequence[Path]) -> str | None:
    java = shutil.which("java")
    if java is None:
        return None
    runtime = Path(java).resolve().parents[1] / "lib" / "modules"
    facts = [":".join(map(str, jars))]
    for file in (runtime, *jars):
        with contextlib.suppress(FileNotFoundError):
            stat = file.stat()
            facts.append(f"{file} {stat.st_size} {stat.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
    return f"{of}-{digest}.jsa"


def written_at_exit(of: str, jars: Sequence[Path], train: Callable[[str], None]) -> str:
    """The option of a JVM of these jars that maps their classes; the archive is made if it is not there.

    ``train`` runs a JVM to its end with the option that it is given, and has it do what the tests' JVMs do. Two processes that
    ask at once wait for each other. ``RuntimeError`` if no archive comes of it; "" where there is no Java.
    """
    name = _name(of, jars)
    if name is None:
        return ""
    directory = cache.root() / "classes"
    archive = directory / name
    if not archive.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with cache.locked(f"{of}-classes"):
            if not archive.exists():
                _train(archive, train)
                _forget(directory, archive)
    os.utime(archive)
    return f"-XX:SharedArchiveFile={archive} -Xshare:auto"


def _train(archive: Path, train: Callable[[str], None]) -> None:
    part = archive.with_suffix(".part")
    part.unlink(missing_ok=True)
    train(f"-XX:ArchiveClassesAtExit={part} -Xlog:disable")
    if not part.exists():
        raise RuntimeError(f"the JVM ended without the archive of classes that it was told to write: {part}")
    part.replace(archive)


def _forget(directory: Path, newest: Path) -> None:
    for one in directory.iterdir():
        if one != newest and one.stat().st_mtime < time.time() - KEPT_SECONDS:
            one.unlink()


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
