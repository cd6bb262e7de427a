"""A real RocketMQ name server and broker, 4.9 or 5.x, as child processes on loopback ports of their own.

::

    with NameServer("5.5.0", tmp / "ns") as ns, Broker("5.5.0", tmp / "broker", ns) as broker:
        broker.create_topic("TopicA", queues=4)
        broker.client().run("produce", topic="TopicA", n=1000)
        broker.kill(); broker.restart()

Files are small (commitlog 1 MiB, consume queue 20,000 bytes) so that they roll while a test watches; every broker
setting can be given as a keyword. Leaving the ``with`` block kills: stores of tests are thrown away and a clean stop
takes 13–18 s. A test that wants a cleanly stopped store calls ``stop()``. Two things no setting changes: the
replication port (5.x), and every port of a 4.9 broker, listen on all interfaces. A third ``java/EarlyCleaner.java`` changes:
the cleaner of expired files would first run 60 s after the broker's start.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kit import cache, classarchive, remoting
from tests.kit.acl import Account
from tests.kit.client import JavaClient
from tests.kit.ports import free_block
from tests.kit.process import Child, ChildError, Scratch

READY_SECONDS = 90.0
CLEANER = {
    "cleanResourceInterval": 500,
    "deleteCommitLogFilesInterval": 1,
    "deleteFileBatchMax": 100,
    "destroyMapedFileIntervalForcibly": 10_000,  # a file that somebody still reads stops all deletion for so long
    "redeleteHangedFileInterval": 5_000,
}
"""Settings that let the broker's cleaner delete at once what it may delete; of some of them 4.9 knows nothing."""
NO_TLS = {"tls.server.mode": "disabled"}
"""Properties of a server that speaks in the clear only."""
_OPENED = ("java.nio", "sun.nio.ch", "jdk.internal.ref", "java.lang", "java.util")
_EXPORTED = ("sun.nio.ch", "jdk.internal.ref")
_LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5p %c{{0}} - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="file"/></root>
</configuration>
"""


def java_command(
    version: str,
    home: Path,
    heap_mib: int,
    main: str,
    *arguments: str,
    scratch: Scratch | None = None,
    class_path: str = "",
    behind: Sequence[Path] = (),
) -> list[str]:
    """A command line that runs a class of RocketMQ ``version`` on Java 11 and newer with ``home`` as its home.

    Temporary files of the JVM go to ``scratch``, by default ``home``/tmp; ``class_path`` replaces the jars of the version,
    ``behind`` are more of its classes.
    """
    scratch = scratch or Scratch(home / "tmp")
    scratch.make()
    flags = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
    flags += [f"--add-exports=java.base/{name}=ALL-UNNAMED" for name in _EXPORTED]
    flags += [
        f"-Xmx{heap_mib}m",
        "-Xms64m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:MaxDirectMemorySize=512m",
    ]
    flags += [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", scratch.java_option]
    jars = cache.rocketmq_directory(version) / "lib"
    if not jars.is_dir():
        raise FileNotFoundError(f"{jars} is missing: run python tests/kit/install.py rocketmq-{version}")
    flags += [] if class_path else classarchive.options(version)
    return ["java", *flags, "-cp", class_path or cache.class_path(version, *behind), main, *arguments]


def write_logging(home: Path, name: str) -> None:
    """The logging file without which programs of 4.9 refuse to start; those of 5.x bring their own."""
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / f"logback_{name}.xml").write_text(_LOGBACK.format(file=home / f"{name}.log"))


class _Server:
    """What name server and broker share: one directory, one JVM, ports that a restart keeps."""

    def __init__(self, version: str, directory: Path, *, tls: bool = False) -> None:
        """``tls``: as RocketMQ comes, with a certificate that it makes at each start, which is half of a start's CPU."""
        self.version = version
        self.directory = Path(directory).resolve()
        self.port = 0
        self.properties = {} if tls else dict(NO_TLS)  # of the JVM, from its next start on
        self._child: Child | None = None
        self._scratch = Scratch(self.directory / "tmp")

    @property
    def address(self) -> str:
        """``127.0.0.1:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the running JVM."""
        return self._running().pid

    @property
    def running(self) -> bool:
        """Whether the JVM is there."""
        return self._child is not None and self._child.running

    def output(self) -> str:
        """The end of what the JVM printed."""
        return self._running().output()

    def start(self) -> Self:
        """Start the JVM and wait until it is ready; the first start chooses the ports."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ask it to end and wait for a clean end (a broker takes 13–18 s); the ports stay ours."""
        if self._child is not None:
            self._child.stop()
            self._child = None
        self._scratch.remove()

    def kill(self) -> None:
        """kill -9: the page cache survives, so nothing acknowledged is lost, but the ``abort`` file stays."""
        if self._child is not None:
            self._child.kill()
            self._child = None
        self._scratch.remove()

    def restart(self) -> None:
        """Start again on the same ports and files; stops cleanly first if it still runs."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.kill()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _running(self) -> Child:
        if self._child is None:
            raise ChildError(f"{type(self).__name__} in {self.directory} is not running")
        return self._child

    def _launch(self, name: str, main: str, heap_mib: int, conf: dict[str, object]) -> Child:
        home = self.directory
        write_logging(home, name)
        path = home / f"{name}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
        java, *command = java_command(
            self.version,
            home,
            heap_mib,
            main,
            "-c",
            str(path),
            scratch=self._scratch,
            behind=[cache.client_classes(self.version)],
        )
        command = [java, *(f"-D{key}={value}" for key, value in self.properties.items()), *command]
        self._child = Child(f"{name} {self.version}", command, home / f"{name}.out")
        return self._child


class NameServer(_Server):
    """A name server; ``address`` is what brokers and clients are told."""

    def start(self) -> Self:
        """Start and wait until it answers requests (1–2 s)."""
        self.port = self.port or free_block()
        conf: dict[str, object] = {"listenPort": self.port, "bindAddress": "127.0.0.1"}
        child = self._launch("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", 128, conf)
        child.wait_until(self._answers, READY_SECONDS, "its first answer")
        return self

    def _answers(self) -> bool:
        try:
            remoting.request(self.address, remoting.ROUTE, {"topic": "none"})
        except OSError:
            return False
        return True


class Broker(_Server):
    """A master broker; ``conf`` are broker settings that win over the defaults of the kit."""

    cluster = "DefaultCluster"

    def __init__(
        self,
        version: str,
        directory: Path,
        name_server: NameServer,
        *,
        name: str = "broker-a",
        heap_mib: int = 512,
        tls: bool = False,
        **conf: object,
    ) -> None:
        super().__init__(version, directory, tls=tls)
        self.name_server = name_server
        self.name = name
        self.signer: Account | None = None
        """Who signs the kit's own requests, where the broker asks for rights."""
        self._heap_mib = heap_mib
        self._conf = conf

    @property
    def store_dir(self) -> Path:
        """``storePathRootDir``: commitlog, consumequeue, config."""
        return self.directory / "store"

    @property
    def commitlog_dir(self) -> Path:
        """The folder with the commitlog files."""
        return self.store_dir / "commitlog"

    def start(self) -> Self:
        """Start, wait for the first answer and until the name server hands out the route (2–8 s)."""
        if not self.port:
            self.port = free_block() + 2  # two below is the VIP port
        child = self._launch("broker", "EarlyCleaner", self._heap_mib, self._settings())
        child.wait_until(self._answers, READY_SECONDS, "its first answer")
        child.wait_until(lambda: self._routed(self.name), READY_SECONDS, "its route at the name server")
        return self

    def client(self) -> JavaClient:
        """The Java client of the same version, pointed at this broker."""
        return JavaClient(
            self.version,
            self.directory / "client",
            name_server=self.name_server.address,
            broker=self.address,
            broker_name=self.name,
        )

    def create_topic(self, topic: str, queues: int = 4, attributes: str = "") -> None:
        """Create or change a topic and wait until its route is known. ``attributes``: of 5.x, ``+reserve.time=72``."""
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
            **({"attributes": attributes} if attributes else {}),
        }
        self._admin(remoting.UPDATE_TOPIC, fields)
        self._running().wait_until(lambda: self._routed(topic), 30, f"the route of topic {topic}")

    def delete_topic(self, topic: str) -> None:
        """Have the broker forget a topic and its queues."""
        self._admin(remoting.DELETE_TOPIC, {"topic": topic})

    def offsets(self, topic: str, queue_id: int) -> range:
        """Queue offsets the broker holds now: ``range(minimum, maximum)``, half open."""
        fields = {"topic": topic, "queueId": str(queue_id)}
        low = self._admin(remoting.MIN_OFFSET, fields).fields["offset"]
        return range(int(low), int(self._admin(remoting.MAX_OFFSET, fields).fields["offset"]))

    def set_conf(self, key: str, value: object) -> None:
        """Change a setting of the running broker; it also rewrites its configuration file."""
        self._conf[key] = value
        self._admin(remoting.UPDATE_BROKER_CONFIG, body=f"{key}={value}\n".encode())

    def configure(self, **conf: object) -> None:
        """Settings from its next start on."""
        self._conf.update(conf)

    def commitlog_files(self) -> list[str]:
        """Names of the commitlog files, oldest first (the newest may be allocated and still empty)."""
        return sorted(path.name for path in self.commitlog_dir.iterdir() if path.name.isdigit())

    def _settings(self) -> dict[str, object]:
        return {
            "brokerClusterName": self.cluster,
            "brokerName": self.name,
            "brokerId": 0,
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "namesrvAddr": self.name_server.address,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "storePathRootDir": self.store_dir,
            "storePathCommitLog": self.commitlog_dir,
            "mappedFileSizeCommitLog": 1 << 20,
            "mappedFileSizeConsumeQueue": 20_000,
            "maxHashSlotNum": 5_000,
            "maxIndexNum": 20_000,
            "autoCreateTopicEnable": "false",
            "diskMaxUsedSpaceRatio": 95,
            # A loaded test machine is no reason to refuse messages.
            "brokerFastFailureEnable": "false",
            "osPageCacheBusyTimeOutMills": 10_000,
            "waitTimeMillsInSendQueue": 10_000,
            # 5.x compares all 38 MB of its timer wheel byte by byte at each flush, and spins through the first of these
            # intervals after its start: a tenth of a core, and three seconds of one, for nothing that a test sees.
            "timerFlushIntervalMs": 60_000,
            "transactionMetricFlushInterval": 250,
            # 5.x never rests again once the first operation of a transaction is older than the interval: so it is long, and
            # each operation is written at once.
            "transactionOpBatchInterval": 3_600_000,
            "transactionOpMsgMaxSize": 1,
            **CLEANER,
            **self._conf,
        }

    def _answers(self) -> bool:
        try:
            return remoting.request(self.address, remoting.RUNTIME_INFO, self._signed({})).code == 0
        except OSError:
            return False

    def _signed(self, fields: dict[str, str], body: bytes = b"") -> dict[str, str]:
        return fields if self.signer is None else self.signer.signed(fields, body)

    def _routed(self, topic: str) -> bool:
        return self.address in remoting.route_addresses(self.name_server.address, topic)

    def _admin(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> remoting.Answer:
        signed = self._signed(fields or {}, body)
        answer = remoting.request(self.address, code, signed, body, timeout_seconds=15)
        if answer.code != 0:
            raise ChildError(
                f"broker {self.name} answered request {code} with {answer.code}: {answer.remark}"
            )
        return answer
