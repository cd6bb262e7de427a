"""A file source: sends the lines of a file to a topic, and keeps its position in the key-value view.

    python deploy/examples/filesource.py /var/log/app.log --topic Logs --broker 127.0.0.1:10911 --server http://127.0.0.1:8089

A batch of lines is sent, and only when the broker has stored all of it the position moves behind it, by compare-and-set. So
no line is left out, and whoever is killed, at whatever moment, sends at most one batch again when it is started again; each
message says where its line begins (property ``sourceOffset``), by which a consumer knows it. Two sources of one file do not
mix: the one that was started last has the position, and the other stops when it moves its own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tiered.broker.client import Dial, RemotingClient, Request
from tiered.broker.questions import Broker
from tiered.broker.send import NEW_MESSAGE, Sending, properties_text
from tiered.client.sync import LATEST, KeyValueClient
from tiered.clock import Clock, SystemClock
from tiered.codec.remoting.codes import ResponseCode
from tiered.errors import Conflict, Invalid, NotFound, TieredError, Unavailable, exit_code
from tiered.keyvalue import Condition, Entry

MAX_LINE_BYTES = 1024 * 1024
SETTLE_TRIES = 10
"""How often a position whose outcome is unknown is looked at."""
POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its end; ``offset``: of its first byte in the file."""

    offset: int
    content: bytes


@dataclass(frozen=True, slots=True)
class FilePosition:
    """What the view holds: everything before ``offset``, ``lines`` lines, is stored by the broker. ``file``: device and inode.
    ``owner``: the source that moves it."""

    file: str
    offset: int
    lines: int
    owner: str

    def encode(self) -> bytes:
        """As the view holds it."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, entry: Entry) -> FilePosition:
        """``Invalid`` if somebody else put it there."""
        try:
            return cls(**json.loads(entry.value))
        except (ValueError, TypeError):
            raise Invalid(
                "the key holds something else than a position",
                found=ascii(entry.value[:60]),
                hint="name another key",
            ) from None


class KeptPosition:
    """One position in the view, moved by compare-and-set."""

    def __init__(self, client: KeyValueClient, namespace: str, key: bytes, clock: Clock) -> None:
        self._client = client
        self._namespace = namespace
        self._key = key
        self._clock = clock
        self._version: int | None = None

    def read(self) -> FilePosition | None:
        """Where it stands, as of now."""
        entry = self._client.get(self._namespace, self._key, LATEST)
        self._version = None if entry is None else entry.version
        return None if entry is None else FilePosition.decode(entry)

    def move(self, position: FilePosition) -> None:
        """From what was read or moved to last. ``Conflict``: another source has it."""
        tries = 0
        while True:
            condition = Condition(absent=True) if self._version is None else Condition(version=self._version)
            try:
                self._version = self._client.put(
                    self._namespace, self._key, position.encode(), condition=condition
                )
                return
            except (Unavailable, Conflict) as error:
                tries += 1
                if self._is_there(position):
                    return
                if isinstance(error, Conflict) or tries == SETTLE_TRIES:
                    raise
            self._clock.wait(POLL_SECONDS)

    def _is_there(self, position: FilePosition) -> bool:
        """Whether the view has it after all: a write whose outcome was unknown may take effect late, before or after the same
        one sent again, and either is as good."""
        with suppress(Unavailable):
            entry = self._client.get(self._namespace, self._key, LATEST)
            if entry is not None and entry.value == position.encode():
                self._version = entry.version
                return True
        return False


class FileSource:
    """``send`` returns when the broker has stored all lines, else it raises. ``owner``: a name that no other source has."""

    def __init__(
        self,
        file: Path,
        send: Callable[[Sequence[Line]], None],
        kept: KeptPosition,
        *,
        owner: str,
        batch_lines: int = 100,
    ) -> None:
        self._file = file
        self._send = send
        self._kept = kept
        self._owner = owner
        self._batch_lines = batch_lines
        self._position = FilePosition("", 0, 0, owner)

    @property
    def position(self) -> FilePosition:
        """Everything before it is stored."""
        return self._position

    def take_over(self) -> str:
        """Begin where the file's source before stopped, and shut that out; what there is to say about it. ``Invalid``: the key
        is of another file, or the file is shorter than what was sent of it."""
        found = self._file.stat()
        name = f"{found.st_dev}:{found.st_ino}"
        before = self._kept.read()
        if before is not None and (before.file != name or before.offset > found.st_size):
            raise Invalid(
                "this is not the file that the position is of, or it has become shorter",
                found=f"{name}, {found.st_size} bytes", expected=f"{before.file}, at least {before.offset} bytes",
                hint="give the file it was, or another --key for this one",
            )  # fmt: skip
        self._position = replace(before or FilePosition(name, 0, 0, ""), owner=self._owner)
        self._kept.move(self._position)
        if before is None:
            return "begins at the first line"
        return (
            f"goes on at line {before.lines + 1}; of the {self._batch_lines} lines from there on some may have been sent"
            " before, if it was killed"
        )

    def step(self) -> int:
        """Send one batch and move the position; how many lines. 0: there is no further whole line."""
        batch = self._next_lines()
        if batch:
            self._send(batch)
            end = batch[-1].offset + len(batch[-1].content) + 1
            moved = replace(self._position, offset=end, lines=self._position.lines + len(batch))
            self._kept.move(moved)
            self._position = moved
        return len(batch)

    def _next_lines(self) -> list[Line]:
        found = list[Line]()
        with self._file.open("rb") as opened:
            opened.seek(self._position.offset)
            while len(found) < self._batch_lines:
                offset = opened.tell()
                text = opened.readline(MAX_LINE_BYTES + 1)
                if len(text) > MAX_LINE_BYTES:
                    raise Invalid(
                        "a line is too long",
                        position=offset,
                        expected=f"at most {MAX_LINE_BYTES} bytes",
                        hint="divide it",
                    )
                if not text.endswith(b"\n"):
                    break  # not whole yet
                found.append(Line(offset, text[:-1]))
        return found


class TopicWriter:
    """Sends lines to queue 0 of a topic, in their order."""

    def __init__(self, client: RemotingClient, topic: str, clock: Clock) -> None:
        if Broker(client).bounds(topic) is None:
            raise NotFound("the broker does not have the topic", topic=topic, hint="create it with one queue")
        self._client = client
        self._topic = topic
        self._clock = clock

    def __call__(self, lines: Sequence[Line]) -> None:
        """``Unavailable`` unless the broker says of each that it is stored as it should be."""
        for line, answer in zip(lines, self._client.ask_all(list(map(self._request, lines))), strict=True):
            if answer is None or answer.code != ResponseCode.SUCCESS:
                raise Unavailable(
                    "the broker did not store a line, or not as safely as it is to", position=line.offset,
                    code=None if answer is None else answer.code, hint="start it again: it goes on where it stands",
                )  # fmt: skip

    def _request(self, line: Line) -> Request:
        properties = properties_text({"sourceOffset": str(line.offset), "WAIT": "true"}, NEW_MESSAGE)
        body = line.content or b"\n"  # brokers fail over an empty message
        return Sending(
            self._topic, 0, body, properties, "FILE_SOURCE", born_ms=self._clock.now_ms()
        ).request()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; the exit code, as of ``tiered``."""
    parser = argparse.ArgumentParser(
        description="Send the lines of a file to a topic; its position is in the view."
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--broker", required=True, help="host:port of a master that has the topic")
    parser.add_argument("--server", required=True, help="http://host:port of tiered kv serve")
    parser.add_argument("--token-file", type=Path, help="a file with kv.http_token")
    parser.add_argument("--namespace", default="positions")
    parser.add_argument("--key", help="of the position; else the file's path")
    parser.add_argument(
        "--batch", type=int, default=100, help="lines that are sent before the position moves"
    )
    parser.add_argument("--follow", action="store_true", help="wait for further lines")
    given = parser.parse_args(arguments)
    try:
        _run(given, SystemClock())
    except TieredError as error:
        sys.stderr.write(f"filesource: {error}\n")
        return exit_code(error)
    except KeyboardInterrupt:
        return 130
    return 0


def _run(given: argparse.Namespace, clock: Clock) -> None:
    token = given.token_file.read_text().strip() if given.token_file else ""
    key = (given.key or str(given.file.resolve())).encode("utf-8", "surrogateescape")
    broker = RemotingClient(given.broker, clock, Dial())
    with closing(broker), KeyValueClient(given.server, token=token) as client:
        kept = KeptPosition(client, given.namespace, key, clock)
        source = FileSource(
            given.file, TopicWriter(broker, given.topic, clock), kept,
            owner=os.urandom(8).hex(), batch_lines=given.batch,
        )  # fmt: skip
        sys.stderr.write(f"filesource: {source.take_over()}\n")
        while True:
            if source.step():
                continue
            if not given.follow:
                break
            clock.wait(POLL_SECONDS)
        sys.stderr.write(f"filesource: {source.position.lines} lines are stored\n")


if __name__ == "__main__":
    sys.exit(main())
