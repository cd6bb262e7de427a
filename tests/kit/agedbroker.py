"""A real broker on what is left of a simulated one's store, and a consumer that reads all of it through the gateway."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.kit.broker import Broker, NameServer
from tests.kit.cache import ROCKETMQ_5
from tests.kit.contents import Contents
from tests.kit.gatewayproc import Gateway
from tests.kit.years import TOPICS, Month


def by_consumer(work: Path, made: Month, archive: str) -> Contents:
    """A pull consumer of the Java client, from the first offset, beside a broker that has the newest files only."""
    directory = work / "broker"
    shutil.copytree(made.broker.store, directory / "store")
    config = directory / "store" / "config"
    config.mkdir(exist_ok=True)
    topics = {
        name: {"topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
        for name, queues in TOPICS.items()
    }
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    file_bytes = made.broker.file_bytes
    with (
        NameServer(ROCKETMQ_5, work / "namesrv") as names,
        Broker(ROCKETMQ_5, directory, names, mappedFileSizeCommitLog=file_bytes) as broker,
        Gateway(work, names.address, archive).running() as gateway,
    ):
        for name, queues in TOPICS.items():
            if not any(broker.offsets(name, queue_id).start for queue_id in range(queues)):
                raise AssertionError(
                    f"the broker still has all of {name}: nothing would come from the archive"
                )
        client = broker.client().through(gateway.address)
        running = [client.start("pull", topic=name, group=f"aged-{name}", idle=10) for name in TOPICS]
        lines = [line for each in running for line in each.wait().lines()]
    return Contents.of((x["topic"], x["queue_id"], x["queue_offset"], x["body_sha256"]) for x in lines)
