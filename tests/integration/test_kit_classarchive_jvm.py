"""The archives of classes that the kit gives to RocketMQ's and Kafka's JVMs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.kit import cache, classarchive
from tests.kit.kafkaclasses import kafka_jars, mapped_classes


@pytest.mark.broker
@pytest.mark.parametrize("version", [cache.ROCKETMQ_5, cache.ROCKETMQ_4])
def test_the_archive_of_classes_fits_the_jars(version: str, tmp_path: Path) -> None:
    """``-Xshare:on`` refuses to start with an archive that does not fit, where otherwise it would only be slow."""
    java = ["java", "-Xshare:on", "-XX:+UseSerialGC", *classarchive.options(version)]
    assert any(option.startswith("-XX:SharedArchiveFile=") for option in java)
    (tmp_path / "own").mkdir()
    fits = cache.class_path(version, tmp_path / "own")
    assert subprocess.run([*java, "-cp", fits, "-version"], check=False).returncode == 0
    other = ":".join(reversed(fits.split(":")))
    assert subprocess.run([*java, "-cp", other, "-version"], check=False).returncode != 0


@pytest.mark.kafka
def test_the_archive_of_classes_fits_the_jars_of_kafka() -> None:
    java = ["java", "-Xshare:on", "-XX:+UseSerialGC", *(o for o in mapped_classes() if o != "-Xshare:auto")]
    assert any(option.startswith("-XX:SharedArchiveFile=") for option in java)
    jars = [*map(str, kafka_jars())]
    assert subprocess.run([*java, "-cp", ":".join(jars), "-version"], check=False).returncode == 0
    other = ":".join(reversed(jars))
    assert subprocess.run([*java, "-cp", other, "-version"], check=False).returncode != 0
