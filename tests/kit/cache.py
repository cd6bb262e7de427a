"""Where the real counterparts live on this machine, and which versions the tests are written against.

Layout, below ``$TIERED_TEST_CACHE`` or ``~/.cache/rocketmq-tiered``::

    rocketmq-<version>/lib/*.jar           the published jars
    rocketmq-<version>/client-<hash>/      client and ``EarlyCleaner`` compiled against them; the hash covers the sources
    rocketmq-<version>/pop-<hash>/         the POP client, the same way (5.x only)
    bin/versitygw-<version>/versitygw      the S3 server
    bin/kvcheck-<hash>/kvcheck             the checker of histories; the hash covers its sources and what they are pinned to
    rocketmq-proxy/                        the Proxy (lib) and the gRPC clients: Java (grpc-java), Python (grpc-python)
    kafka-<version>/lib/*.jar              a Kafka broker
    iceberg-rest/                          Iceberg's REST catalog (lib), its ``main`` compiled (classes-<hash>)
    pyspark-oldest/                        the oldest PySpark that is supported (python), Delta and Iceberg for it (jars)
    pyspark-4.2/                           the one between it and the newest (python), Delta for it (jars)
    classes/spark-<hash>.jsa               classes that Spark's JVMs map (classarchive.py); the hash covers java and the jars
    <name>.installed                       marker, written last; holds what was installed, as JSON
    <name>.lock                            held while one process installs

A counterpart is present when its marker says what this file says; anything else counts as absent.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

JAVA_DIRECTORY = Path(__file__).with_name("java")
CLIENT_SOURCES = tuple(JAVA_DIRECTORY / f"{name}.java" for name in ("Client", "Consumers", "EarlyCleaner"))
POP_SOURCE = JAVA_DIRECTORY / "Pop.java"
GRPC_SOURCE = JAVA_DIRECTORY / "Grpc.java"
PROXY_POMS = (JAVA_DIRECTORY / "pom-proxy.xml", JAVA_DIRECTORY / "pom-grpc.xml")

TABLES_POM = JAVA_DIRECTORY / "pom-sparktables.xml"
DELTA_POM = JAVA_DIRECTORY / "pom-sparkdelta.xml"
REST_POM = JAVA_DIRECTORY / "pom-icebergrest.xml"
REST_SOURCE = JAVA_DIRECTORY / "RestCatalog.java"
KAFKA_POM = JAVA_DIRECTORY / "pom-kafka.xml"
MIRROR_POM = JAVA_DIRECTORY / "pom-kafkamirror.xml"

CHECKER_DIRECTORY = Path(__file__).with_name("porcupine")
CHECKER_SOURCES = tuple(
    CHECKER_DIRECTORY / name for name in ("go.mod", "go.sum", "history.go", "main.go", "model.go")
)

GO_CLIENT_DIRECTORY = Path(__file__).with_name("goclient")
GO_CLIENT_SOURCES = tuple(GO_CLIENT_DIRECTORY / name for name in ("go.mod", "go.sum", "main.go"))

ROCKETMQ_5 = "5.5.0"
"""Newest complete 5.x release in Maven Central."""
ROCKETMQ_4 = "4.9.7"
"""Newest 4.9.x whose broker and name server are published (of 4.9.8 only the client and tools are)."""
VERSITYGW = "v1.8.0"
PORCUPINE = "v1.3.1"
"""The library of the checker of histories, as its ``go.mod`` pins it."""
GO_CLIENT = "v2.1.2"
"""RocketMQ's own client for Go, as the ``go.mod`` of the consumer that is made with it pins it."""
GRPC_PYTHON = "5.1.2"
PROXY = "rocketmq-proxy"
"""Name of the counterpart that is the Proxy and the gRPC clients."""
ICEBERG = "1.11.0"
"""Newest whose tests are published, which the REST catalog is one of."""
REST_CATALOG = "iceberg-rest"
"""Name of the counterpart that is Iceberg's own REST catalog."""
KAFKA_VERSION = "4.4.0"
KAFKA = f"kafka-{KAFKA_VERSION}"
"""Name of the counterpart that is a Kafka broker, as its pom file pins it."""
MIRROR = "kafka-mirror"
"""Name of the counterpart that is Kafka's MirrorMaker 2."""
MIRROR_VERSION = "4.3.1"
"""Newest whose Connect is published."""
OLD_SPARK = "pyspark-oldest"
"""Name of the counterpart that is the oldest PySpark that is supported, with table formats for it."""
MIDDLE_SPARK = "pyspark-4.2"
"""Name of the counterpart that is the PySpark between it and the newest, with Delta, which has a release for it."""


@dataclass(frozen=True, slots=True)
class Counterpart:
    """One thing to install. ``tier`` is the pytest marker of the tests that need it."""

    name: str
    tier: str
    version: str


COUNTERPARTS = {
    c.name: c
    for c in (
        Counterpart(f"rocketmq-{ROCKETMQ_5}", "broker", ROCKETMQ_5),
        Counterpart(f"rocketmq-{ROCKETMQ_4}", "broker", ROCKETMQ_4),
        Counterpart("versitygw", "s3server", VERSITYGW),
        Counterpart("porcupine", "porcupine", PORCUPINE),
        Counterpart("rocketmq-go", "goclient", GO_CLIENT),
        Counterpart(PROXY, "proxy", ROCKETMQ_5),
        Counterpart(REST_CATALOG, "restcatalog", ICEBERG),
        Counterpart(KAFKA, "kafka", KAFKA_VERSION),
        Counterpart(MIRROR, "kafkamirror", MIRROR_VERSION),
        Counterpart(OLD_SPARK, "oldspark", "4.1.0"),
        Counterpart(MIDDLE_SPARK, "middlespark", "4.2.1"),
    )
}


def root() -> Path:
    """The cache directory; it need not exist."""
    named = os.environ.get("TIERED_TEST_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "rocketmq-tiered"


def rocketmq_directory(version: str) -> Path:
    """Where the jars (``lib/``) and the compiled client of one version are."""
    return root() / f"rocketmq-{version}"


def jars(version: str) -> list[Path]:
    """The jars of one version, always in the same order."""
    return sorted((rocketmq_directory(version) / "lib").glob("*.jar"))


def class_path(version: str, *behind: Path) -> str:
    """The jars of one version, and what comes behind them."""
    return ":".join(map(str, (*jars(version), *behind)))


def client_classes(version: str) -> Path:
    """Where ``CLIENT_SOURCES`` are compiled to; another source text gives another directory."""
    return rocketmq_directory(version) / f"client-{_digest(*CLIENT_SOURCES)}"


def pop_classes(version: str) -> Path:
    """Where the POP client is compiled to."""
    return rocketmq_directory(version) / f"pop-{_digest(POP_SOURCE)}"


def proxy_directory() -> Path:
    """Where the Proxy and the gRPC clients are."""
    return root() / PROXY


def grpc_classes() -> Path:
    """Where the Java gRPC client is compiled to."""
    return proxy_directory() / f"grpc-{_digest(GRPC_SOURCE)}"


def grpc_python() -> Path:
    """The interpreter of the environment that has the Python gRPC client."""
    return proxy_directory() / "grpc-python" / "bin" / "python"


def rest_directory() -> Path:
    """Where the REST catalog's jars (``lib``) are."""
    return root() / REST_CATALOG


def rest_classes() -> Path:
    """Where the REST catalog's ``main`` is compiled to."""
    return rest_directory() / f"classes-{_digest(REST_SOURCE)}"


def kafka_directory() -> Path:
    """Where the Kafka broker's jars (``lib``) are."""
    return root() / KAFKA


def mirror_jars() -> Path:
    """Where MirrorMaker's jars are."""
    return root() / MIRROR / "lib"


def spark_home(name: str) -> Path:
    """Where a PySpark that is not the newest (``python``) and table formats for it (``jars``) are."""
    return root() / name


def spark_pom(name: str) -> Path:
    """The pom file that pins its table formats."""
    return TABLES_POM if name == OLD_SPARK else DELTA_POM


def versitygw_binary() -> Path:
    """The S3 server's executable."""
    return root() / "bin" / f"versitygw-{VERSITYGW}" / "versitygw"


def checker_binary() -> Path:
    """The executable that says whether histories are linearizable."""
    return root() / "bin" / f"kvcheck-{_digest(*CHECKER_SOURCES)}" / "kvcheck"


def go_consumer() -> Path:
    """The consumer that is made with RocketMQ's client for Go."""
    return root() / "bin" / f"goconsume-{_digest(*GO_CLIENT_SOURCES)}" / "goconsume"


def pom(version: str) -> Path:
    """The Maven file that names the artifacts of a version."""
    return JAVA_DIRECTORY / f"pom-{version.split('.')[0]}.xml"


def marker(name: str) -> Path:
    """The file whose content says that ``name`` is installed."""
    return root() / f"{name}.installed"


def expected_marker(counterpart: Counterpart) -> str:
    """What the marker must hold: the version, and for RocketMQ the digest of its pom file."""
    facts = {"version": counterpart.version}
    if counterpart.tier == "broker":
        facts["pom"] = _digest(pom(counterpart.version))
    if counterpart.tier == "proxy":
        facts |= {"poms": _digest(*PROXY_POMS), "python": GRPC_PYTHON}
    if counterpart.name in (OLD_SPARK, MIDDLE_SPARK):
        facts["pom"] = _digest(spark_pom(counterpart.name))
    if counterpart.tier == "restcatalog":
        facts["pom"] = _digest(REST_POM)
    if counterpart.tier == "kafka":
        facts["pom"] = _digest(KAFKA_POM)
    if counterpart.tier == "kafkamirror":
        facts["pom"] = _digest(MIRROR_POM)
    return json.dumps(facts, sort_keys=True)


def installed(name: str) -> bool:
    """Whether ``name`` is there, as this file wants it (the compiled client included)."""
    counterpart = COUNTERPARTS[name]
    try:
        if marker(name).read_text() != expected_marker(counterpart):
            return False
    except OSError:
        return False
    if counterpart.tier == "broker":
        version = counterpart.version
        pops = version != ROCKETMQ_5 or (pop_classes(version) / "Pop.class").exists()
        return pops and (client_classes(version) / "Client.class").exists()
    if counterpart.tier == "proxy":
        return grpc_python().exists() and (grpc_classes() / "Grpc.class").exists()
    if counterpart.tier == "restcatalog":
        return (rest_classes() / "RestCatalog.class").exists()
    if counterpart.tier == "kafka":
        return (kafka_directory() / "lib").exists()
    if counterpart.tier == "kafkamirror":
        return mirror_jars().exists()
    if name in (OLD_SPARK, MIDDLE_SPARK):
        return all((spark_home(name) / part).exists() for part in ("python/pyspark", "jars"))
    if counterpart.tier == "porcupine":
        return checker_binary().exists()
    if counterpart.tier == "goclient":
        return go_consumer().exists()
    return versitygw_binary().exists()


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the installation lock of ``name``; a second process waits here."""
    root().mkdir(parents=True, exist_ok=True)
    with open(root() / f"{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digest(*paths: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:12]
