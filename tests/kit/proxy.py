"""The real RocketMQ Proxy in cluster mode, and the gRPC clients that speak to it."""

from __future__ import annotations

import itertools
import json
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kit import cache, remoting
from tests.kit.broker import Broker, java_command
from tests.kit.pop import Popping
from tests.kit.ports import free_block
from tests.kit.process import Child, Scratch

READY_SECONDS = 90.0
PYTHON_CLIENT = Path(__file__).with_name("grpcclient.py")


def create_typed_topic(broker: Broker, topic: str, queues: int = 4) -> None:
    """A topic for normal messages: the Proxy refuses topics of no type."""
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues), "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", "attributes": "+message.type=NORMAL",
    }  # fmt: skip
    answer = remoting.request(broker.address, remoting.UPDATE_TOPIC, fields, timeout_seconds=15)
    assert answer.code == 0, answer.remark


class Proxy:
    """One Proxy for one cluster. Leaving the ``with`` block kills it."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self._broker = broker
        self._directory = directory
        self._port = 0
        self._numbers = itertools.count(1)
        self._scratch = Scratch(directory / "tmp")
        self._child: Child | None = None

    @property
    def endpoint(self) -> str:
        """Where gRPC clients connect."""
        return f"127.0.0.1:{self._port}"

    @property
    def remoting_address(self) -> str:
        """Where clients of the remoting protocol connect, as to a name server."""
        return f"127.0.0.1:{self._port + 1}"

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._child is not None, "the Proxy was never started"
        return self._child.pid

    def __enter__(self) -> Self:
        self._port = free_block()
        home = self._directory
        (home / "conf").mkdir(parents=True, exist_ok=True)
        conf = home / "conf" / "rmq-proxy.json"
        settings = {
            "rocketMQClusterName": self._broker.cluster,
            "proxyMode": "CLUSTER",
            "namesrvAddr": self._broker.name_server.address,
            "grpcServerPort": self._port,
            "remotingListenPort": self._port + 1,
            "localServeAddr": "127.0.0.1",
        }
        conf.write_text(json.dumps(settings))
        main = "org.apache.rocketmq.proxy.ProxyStartup"
        jars = f"{cache.proxy_directory() / 'lib'}/*"
        command = java_command(
            cache.ROCKETMQ_5, home, 512, main, "-pc", str(conf), scratch=self._scratch, class_path=jars
        )
        self._child = Child("proxy", command, home / "proxy.out", {"RMQ_PROXY_HOME": str(home)})
        self._child.wait_until(self._answers, READY_SECONDS, "its gRPC port")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            self._child.kill()
        self._scratch.remove()

    def java(self, command: str, **options: object) -> Popping:
        """The Java client: ``simple`` or ``push``."""
        path, scratch = self._place(command)
        java = ["java", "-Xmx256m", "-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        java += [f"-Duser.home={self._directory}", scratch.java_option]
        jars = cache.proxy_directory() / "grpc-java"
        arguments = [
            f"{key}={value}" for key, value in {"endpoint": self.endpoint, "out": path, **options}.items()
        ]
        line = [*java, "-cp", f"{cache.grpc_classes()}:{jars}/*", "Grpc", command, *arguments]
        return Popping(Child(f"grpc {command}", line, path.with_suffix(".out")), path, scratch)

    def python(self, kind: str, topic: str, group: str, idle: float, wanted: int) -> Popping:
        """The Python client: ``simple`` or ``push``. It ends 6 s after so many messages, or ``idle`` after its last."""
        path, scratch = self._place("python")
        line = [
            str(cache.grpc_python()),
            str(PYTHON_CLIENT),
            kind,
            self.endpoint,
            topic,
            group,
            str(path),
            str(idle),
            str(wanted),
        ]
        home = {"HOME": str(self._directory), "PYTHONPATH": ""}
        return Popping(Child("grpc python", line, path.with_suffix(".out"), home), path, scratch)

    def _place(self, name: str) -> tuple[Path, Scratch]:
        path = self._directory / f"{name}-{next(self._numbers)}.jsonl"
        scratch = Scratch(path.with_suffix(".tmp"))
        scratch.make()
        return path, scratch

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        return True
