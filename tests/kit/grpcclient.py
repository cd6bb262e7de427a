"""The unmodified Python gRPC client, run by the interpreter that has it: ``grpcclient.py ENDPOINT TOPIC GROUP OUT IDLE``.

A PushConsumer; one JSON line per delivery goes to OUT. Ends after IDLE seconds without one. Imports nothing of this repository.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def main() -> None:
    """Consume until nothing comes any more."""
    from rocketmq.v5.client import ClientConfiguration, Credentials  # type: ignore[import-not-found]
    from rocketmq.v5.consumer.push import (  # type: ignore[import-not-found]
        ConsumeResult,
        MessageListener,
        PushConsumer,
    )
    from rocketmq.v5.model import FilterExpression  # type: ignore[import-not-found]

    endpoint, topic, group, path, idle = sys.argv[1:6]
    last = [time.monotonic()]
    with open(path, "a", encoding="utf-8") as out:

        class Noting(MessageListener):  # type: ignore[misc]
            def consume(self, message: Any) -> Any:
                line = {
                    "seq": int(message.properties["seq"]),
                    "attempt": message.delivery_attempt,
                    "tags": message.tag,
                    "body": message.body.decode(),
                }
                out.write(json.dumps(line) + "\n")
                out.flush()
                last[0] = time.monotonic()
                return ConsumeResult.SUCCESS

        consumer = PushConsumer(
            ClientConfiguration(endpoint, Credentials()), group, Noting(), {topic: FilterExpression()}
        )
        consumer.startup()
        last[0] = time.monotonic()
        while time.monotonic() - last[0] < float(idle):
            time.sleep(0.1)
        consumer.shutdown()


if __name__ == "__main__":
    main()
