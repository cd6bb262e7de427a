"""Rows sent again to a 4.9 broker that asks for signatures, over TLS, by processes that note their progress on S3."""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.kit import acl, cache, golden, remoting
from tests.kit.acl import Account
from tests.kit.broker import Broker, NameServer
from tests.kit.certificates import Authority
from tests.kit.daemonproc import wait_for
from tests.kit.s3server import SECRET, S3Server
from tests.kit.sparkcluster import Driver
from tests.kit.sparkscene import archive, batches_of, expected
from tiered.clock import SystemClock
from tiered.errors import Invalid, Unavailable
from tiered_spark.replay.options import parse_replay_options
from tiered_spark.replay.progress import decode_note
from tiered_spark.replay.source import Sent, send

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.broker, pytest.mark.s3server]

SOURCE, TARGET = "OrderEvents", "Again"
SENDER = Account("replay-key-01", "replay-secret", {TARGET: "PUB|SUB"})
STRANGER = Account("stranger-01", "stranger-secret", {"Other": "PUB"})
PRETENDER = Account(SENDER.key, "a-wrong-secret")
QUEUES = 4
COMPRESSED = 1


@dataclass(frozen=True, slots=True)
class World:
    """``url``: an archive. ``options``: of a replay to the broker, all but a ``replayId``."""

    broker: Broker
    authority: Authority
    url: str
    options: dict[str, str]
    bucket: str
    s3: S3Server

    def environment(self, account: Account) -> dict[str, str]:
        """All keys that a sender needs, as variables."""
        keys = {"ROCKETMQ_ACCESS_KEY": account.key, "ROCKETMQ_SECRET_KEY": account.secret}
        return {**self.s3.environment(), **keys}

    def objects(self, prefix: str) -> dict[str, bytes]:
        """What lies in the bucket."""
        client = self.s3.client()
        listed = client.list_objects_v2(Bucket=self.bucket, Prefix=f"replays/{prefix}").get("Contents", [])
        found = {
            one["Key"]: client.get_object(Bucket=self.bucket, Key=one["Key"])["Body"].read() for one in listed
        }
        client.close()
        return found

    def stored(self) -> int:
        """Messages in the target, by the broker's word."""
        ends = []
        for number in range(QUEUES):
            asked = SENDER.signed({"topic": TARGET, "queueId": str(number)})
            ends.append(
                int(remoting.request(self.broker.address, remoting.MAX_OFFSET, asked).fields["offset"])
            )
        return sum(ends)

    def sends(self, batches: Iterator[pa.RecordBatch], **options: object) -> Sent:
        """One task in this process, with this process's environment."""
        given = {**self.options, **{name: str(value) for name, value in options.items()}}
        return send(parse_replay_options(given), batches, SystemClock(), 0)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows that are sent."""
        return batches_of({"archive": self.url, "topics": SOURCE})


@pytest.fixture(scope="module")
def world(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Name server and broker of 4.9 with certificates; they still take who speaks in the clear, as the kit does."""
    directory = tmp_path_factory.mktemp("replay-real")
    root = golden.unpack("broker-store", directory) / golden.STORE_DIRS["broker-store"][0]
    url = archive(root, directory)
    authority = Authority(directory / "ca")
    mine = authority.issue("server")
    tls = {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": str(mine.certificate),
        "tls.server.keyPath": str(mine.key),
    }
    names = NameServer(cache.ROCKETMQ_4, directory / "namesrv")
    broker = Broker(cache.ROCKETMQ_4, directory / "broker", names, aclEnable="true")
    names.properties = broker.properties = tls
    acl.open_to_all(broker.directory, (SENDER, STRANGER))
    with names, broker:
        broker.create_topic(TARGET, QUEUES)
        acl.closed(broker.directory, (SENDER, STRANGER))
        wait_for(
            lambda: remoting.request(broker.address, remoting.RUNTIME_INFO).code != 0, "a broker that refuses"
        )
        bucket = s3_server.bucket()
        options = {
            "namesrv": names.address, "topic": TARGET, "tls": "true", "tlsCa": str(authority.certificate),
            "checkpoint": s3_server.url(bucket, "replays"), "checkpointEvery": "500",
        }  # fmt: skip
        yield World(broker, authority, url, options, bucket, s3_server)


@pytest.fixture
def keys(world: World, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The sender's keys, in this process's environment."""
    for name, value in world.environment(SENDER).items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def content(row: dict[str, Any]) -> tuple[Any, ...]:
    """What an archived message says, its body as its producer wrote it."""
    body = zlib.decompress(row["body"]) if row["sys_flag"] & COMPRESSED else row["body"]
    return hashlib.sha256(body).hexdigest(), row["tags"], row["unique_key"]


def places_of(data: bytes, key: str) -> set[tuple[str, int]]:
    """Source queues and offsets that a note names."""
    return {(queue, int(offset)) for queue, found in decode_note(data, key)[1].items() for offset in found}


@pytest.mark.usefixtures("keys")
def test_a_task_that_dies_and_a_query_that_goes_on(world: World, tmp_path: Path) -> None:
    """The first sends some rows from this process. Spark, in a process of its own, sends the others and none of those twice."""
    wanted = [row for row in expected(world.url) if row["topic"] == SOURCE]
    assert len(wanted) > 3000

    def dying() -> Iterator[pa.RecordBatch]:
        yield next(world.rows()).slice(0, 1200)
        raise RuntimeError("the executor is lost")

    with pytest.raises(RuntimeError, match="lost"):
        world.sends(dying(), replayId="r")
    noted = world.objects("r/acked/")
    assert (
        0
        < world.stored()
        == len({place for key, data in noted.items() for place in places_of(data, key)})
        < 1201
    )
    driver = Driver(
        tmp_path / "again", "local[2]", archive=world.url, options={"topics": SOURCE},
        replay={**world.options, "replayId": "r"}, environment=world.environment(SENDER),
    )  # fmt: skip
    assert driver.run() == 0, driver.output()
    client = world.broker.client()
    got = client.run("push", topic=TARGET, group="GAgain", idle=5, **SENDER.options).lines()
    origins = Counter(line["properties"]["TIERED_ORIGIN"] for line in got)
    places = {
        f"{row['cluster']}/{row['broker']}/{SOURCE}/{row['queue_id']}/{row['queue_offset']}" for row in wanted
    }
    assert origins == Counter(places)  # each once
    told = Counter((line["body_sha256"], line["tags"], line["unique_key"]) for line in got)
    assert told == Counter(map(content, wanted))
    assert world.stored() == len(wanted)
    done = world.sends(world.rows(), replayId="r")
    assert (done.stored, done.before) == (0, len(wanted))
    notes = world.objects("r/")
    assert "replays/r/target.json" in notes
    assert len(notes) > len(noted) + 1
    secrets = (SENDER.secret.encode(), SECRET.encode())
    written = [*notes.values(), driver.log.read_bytes()]
    assert not [data for data in written if any(secret in data for secret in secrets)]


@pytest.mark.parametrize("account", [STRANGER, PRETENDER], ids=["no right", "wrong secret"])
def test_who_may_not_send_is_told_so(world: World, keys: pytest.MonkeyPatch, account: Account) -> None:
    for name, value in world.environment(account).items():
        keys.setenv(name, value)
    with pytest.raises(Invalid, match="refuses to store") as caught:
        world.sends(world.rows(), replayId=f"not-{account.key}")
    assert account.secret not in str(caught.value)
    assert world.objects(f"not-{account.key}/acked/") == {}


def test_who_has_no_keys_is_told_so(world: World, keys: pytest.MonkeyPatch) -> None:
    keys.delenv("ROCKETMQ_ACCESS_KEY")
    keys.delenv("ROCKETMQ_SECRET_KEY")
    with pytest.raises(Invalid, match="refuses to store"):
        world.sends(world.rows(), replayId="nobody")


@pytest.mark.usefixtures("keys")
def test_a_server_that_another_authority_signed_is_not_spoken_to(world: World, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    with pytest.raises(Unavailable, match=r"(?i)certificate verify failed"):
        world.sends(world.rows(), replayId="other", tlsCa=other.certificate)
