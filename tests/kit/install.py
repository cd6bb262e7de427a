"""Install the real counterparts of the tests: ``python tests/kit/install.py rocketmq-5.5.0 rocketmq-4.9.7 versitygw``.

``all`` stands for every name. Versions are pinned, nothing is installed twice, two runs at once wait for each
other, and a run that is killed leaves nothing that counts as installed: the marker file is written last. RocketMQ
and Kafka come from Maven's configured repository with ``mvn``, the S3 server and what checks histories from Go's
configured module proxy with ``go``. Exit code 1, with one paragraph, when a tool is missing or fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.kit import cache, classarchive

MAVEN_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
VERSITYGW_MODULE = "github.com/versity/versitygw/cmd/versitygw"
_PACKAGES = {
    "mvn": "Maven 3.8 or newer (Debian: apt-get install maven)",
    "java": "a Java 11 or newer runtime (Debian: apt-get install openjdk-17-jdk-headless)",
    "javac": "a Java 11 or newer compiler (Debian: apt-get install openjdk-17-jdk-headless)",
    "go": "Go 1.24 or newer (https://go.dev/dl)",
}


class InstallError(Exception):
    """A counterpart could not be installed; the text is fit for the person at the terminal."""


def install(name: str, say: Callable[[str], None] = print) -> None:
    """Install one counterpart unless it is there; raises InstallError. Safe to call from several processes."""
    counterpart = cache.COUNTERPARTS.get(name)
    if counterpart is None:
        raise InstallError(f"unknown counterpart {name!r}; known: {', '.join(cache.COUNTERPARTS)}, all")
    if cache.installed(name):
        say(f"{name}: already in {cache.root()}")
    else:
        _install(counterpart, say)
        say(f"{name}: installed in {cache.root()}")
    if counterpart.tier == "broker":
        classarchive.make(counterpart.version, say)


def _install(counterpart: cache.Counterpart, say: Callable[[str], None]) -> None:
    with cache.locked(counterpart.name):
        if cache.installed(counterpart.name):
            return
        if counterpart.tier == "broker":
            _install_rocketmq(counterpart, say)
        elif counterpart.tier == "proxy":
            _install_proxy(say)
        elif counterpart.name in (cache.OLD_SPARK, cache.MIDDLE_SPARK):
            _install_spark(counterpart, say)
        elif counterpart.tier == "restcatalog":
            _install_rest_catalog(counterpart, say)
        elif counterpart.tier == "kafka":
            _install_kafka(counterpart, say)
        elif counterpart.tier == "kafkamirror":
            _install_mirror(counterpart, say)
        elif counterpart.tier == "porcupine":
            _build_with_go(counterpart, cache.CHECKER_DIRECTORY, cache.checker_binary(), say)
        elif counterpart.tier == "goclient":
            _build_with_go(counterpart, cache.GO_CLIENT_DIRECTORY, cache.go_consumer(), say)
        else:
            _install_versitygw(say)
        mark = cache.marker(counterpart.name)
        temporary = mark.with_suffix(".tmp")
        temporary.write_text(cache.expected_marker(counterpart))
        temporary.replace(mark)


def _install_rocketmq(counterpart: cache.Counterpart, say: Callable[[str], None]) -> None:
    version = counterpart.version
    home = cache.rocketmq_directory(version)
    home.mkdir(parents=True, exist_ok=True)
    if not _marked(counterpart):
        _need("mvn", "java")
        say(f"{counterpart.name}: mvn copies the published jars (40–100 MB, 10–60 s) to {home / 'lib'}")
        _copy_jars(cache.pom(version), home / "lib", f"-Drocketmq.version={version}")
    _compile_client(version, say)
    if version == cache.ROCKETMQ_5:
        _compile((cache.POP_SOURCE,), home / "lib", cache.pop_classes(version), say)


def _marked(counterpart: cache.Counterpart) -> bool:
    """Whether its jars are those wanted; a marker that says otherwise goes."""
    mark = cache.marker(counterpart.name)
    if mark.exists() and mark.read_text() == cache.expected_marker(counterpart):
        return True
    mark.unlink(missing_ok=True)
    return False


def _copy_jars(pom: Path, jars: Path, *options: str) -> None:
    """All jars that ``pom`` names, in place of what is in ``jars``."""
    with tempfile.TemporaryDirectory(dir=jars.parent, prefix="part-") as part:
        maven = ["mvn", "-B", "-q", "-f", str(pom), *options, MAVEN_COPY]
        _run([*maven, "-DincludeScope=runtime", f"-DoutputDirectory={part}/jars"], timeout_seconds=900)
        shutil.rmtree(jars, ignore_errors=True)
        os.replace(f"{part}/jars", jars)


def _compile_client(version: str, say: Callable[[str], None]) -> None:
    classes = cache.client_classes(version)
    if (classes / "Client.class").exists():
        return
    _need("javac")
    home = cache.rocketmq_directory(version)
    say(f"rocketmq-{version}: javac compiles the test client to {classes}")
    with tempfile.TemporaryDirectory(dir=home, prefix="part-") as part:
        command = ["javac", "-nowarn", "-encoding", "UTF-8", "-cp", f"{home / 'lib'}/*"]
        _run([*command, "-d", f"{part}/classes", *map(str, cache.CLIENT_SOURCES)], timeout_seconds=120)
        shutil.rmtree(classes, ignore_errors=True)
        os.replace(f"{part}/classes", classes)


def _compile(sources: Sequence[Path], jars: Path, classes: Path, say: Callable[[str], None]) -> None:
    if classes.exists():
        return
    _need("javac")
    say(f"javac compiles {', '.join(source.name for source in sources)} to {classes}")
    with tempfile.TemporaryDirectory(dir=classes.parent, prefix="part-") as part:
        command = ["javac", "-nowarn", "-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", f"{part}/classes"]
        _run([*command, *map(str, sources)], timeout_seconds=120)
        os.replace(f"{part}/classes", classes)


def _install_proxy(say: Callable[[str], None]) -> None:
    """The Proxy and the Java gRPC client from Maven's repository, the Python gRPC client, from pip's, in a venv of its own."""
    _need("mvn", "java")
    home = cache.proxy_directory()
    home.mkdir(parents=True, exist_ok=True)
    for pom, name in zip(cache.PROXY_POMS, ("lib", "grpc-java"), strict=True):
        if not (home / name).exists():
            say(f"{cache.PROXY}: mvn copies published jars to {home / name}")
            _copy_jars(pom, home / name)
    _compile((cache.GRPC_SOURCE,), home / "grpc-java", cache.grpc_classes(), say)
    python = cache.grpc_python()
    if not python.exists():
        place = python.parent.parent
        say(f"{cache.PROXY}: pip installs rocketmq-python-client {cache.GRPC_PYTHON} to {place}")
        shutil.rmtree(place, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(place)], timeout_seconds=120)
        wanted = f"rocketmq-python-client=={cache.GRPC_PYTHON}"
        try:
            _run([str(python), "-m", "pip", "install", "--quiet", wanted], timeout_seconds=600)
        except InstallError:
            shutil.rmtree(place, ignore_errors=True)
            raise


def _install_rest_catalog(counterpart: cache.Counterpart, say: Callable[[str], None]) -> None:
    home = cache.rest_directory()
    home.mkdir(parents=True, exist_ok=True)
    if not _marked(counterpart):
        _need("mvn", "java")
        say(f"{counterpart.name}: mvn copies published jars (33 MB, a few seconds) to {home / 'lib'}")
        _copy_jars(cache.REST_POM, home / "lib")
    _compile((cache.REST_SOURCE,), home / "lib", cache.rest_classes(), say)


def _install_kafka(counterpart: cache.Counterpart, say: Callable[[str], None]) -> None:
    _need("mvn", "java")
    home = cache.kafka_directory()
    home.mkdir(parents=True, exist_ok=True)
    if not _marked(counterpart):
        say(f"{counterpart.name}: mvn copies published jars (43 MB, some seconds) to {home / 'lib'}")
        _copy_jars(cache.KAFKA_POM, home / "lib")


def _install_mirror(counterpart: cache.Counterpart, say: Callable[[str], None]) -> None:
    _need("mvn", "java")
    jars = cache.mirror_jars()
    jars.parent.mkdir(parents=True, exist_ok=True)
    if not _marked(counterpart):
        say(f"{counterpart.name}: mvn copies published jars (34 MB, up to some minutes) to {jars}")
        _copy_jars(cache.MIRROR_POM, jars)


def _install_spark(counterpart: cache.Counterpart, say: Callable[[str], None]) -> None:
    """PySpark alone, in a directory for ``PYTHONPATH``: what else it needs the tests' own environment has."""
    _need("mvn", "java")
    name, version = counterpart.name, counterpart.version
    home = cache.spark_home(name)
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "jars").exists():
        say(f"{name}: mvn copies table formats to {home / 'jars'}")
        _copy_jars(cache.spark_pom(name), home / "jars")
    if not (home / "python").exists():
        say(f"{name}: pip installs pyspark {version} (450 MB, about a minute) to {home / 'python'}")
        with tempfile.TemporaryDirectory(dir=home, prefix="part-") as part:
            wanted = ["--no-deps", "--target", f"{part}/python", f"pyspark=={version}"]
            _run([sys.executable, "-m", "pip", "install", "--quiet", *wanted], timeout_seconds=900)
            os.replace(f"{part}/python", home / "python")


def _install_versitygw(say: Callable[[str], None]) -> None:
    _need("go")
    binary = cache.versitygw_binary()
    binary.parent.mkdir(parents=True, exist_ok=True)
    say(f"versitygw: go builds {cache.VERSITYGW} (60 MB, 1–3 minutes) to {binary}")
    with tempfile.TemporaryDirectory(dir=binary.parent, prefix="part-") as part:
        environment = {**os.environ, "GOBIN": part, "CGO_ENABLED": "0"}
        command = ["go", "install", f"{VERSITYGW_MODULE}@{cache.VERSITYGW}"]
        _run(command, timeout_seconds=1800, environment=environment, directory=part)
        os.replace(f"{part}/versitygw", binary)


def _build_with_go(
    counterpart: cache.Counterpart, sources: Path, binary: Path, say: Callable[[str], None]
) -> None:
    """A program from its sources here; the modules it needs are pinned by ``go.mod`` and ``go.sum``."""
    _need("go")
    binary.parent.mkdir(parents=True, exist_ok=True)
    say(f"{counterpart.name}: go builds {sources.name} with {counterpart.version} (some seconds) to {binary}")
    with tempfile.TemporaryDirectory(dir=binary.parent, prefix="part-") as part:
        environment = {**os.environ, "CGO_ENABLED": "0"}
        command = ["go", "build", "-trimpath", "-mod=readonly", "-o", f"{part}/built", "."]
        _run(command, timeout_seconds=600, environment=environment, directory=str(sources))
        os.replace(f"{part}/built", binary)


def _need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            raise InstallError(
                f"the command {tool!r} is not on PATH; install {_PACKAGES[tool]} and run this again"
            )


def _run(
    command: Sequence[str],
    *,
    timeout_seconds: float,
    environment: dict[str, str] | None = None,
    directory: str | None = None,
) -> None:
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InstallError(f"{' '.join(command)} did not end within {timeout_seconds:.0f} s") from None
    if done.returncode != 0:
        raise InstallError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}")


def main(arguments: Sequence[str]) -> int:
    """Install what the command line names; 0 when all of it is there."""
    parser = argparse.ArgumentParser(description="Install the real counterparts of the tests.")
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"all, {', '.join(cache.COUNTERPARTS)}")
    names: list[str] = parser.parse_args(arguments).names
    try:
        for name in dict.fromkeys(cache.COUNTERPARTS if "all" in names else names):
            install(name)
    except InstallError as error:
        print(f"not installed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
