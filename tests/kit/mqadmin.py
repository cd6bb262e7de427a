"""RocketMQ's own administration tool, ``mqadmin``, from the published jars.

::

    said = MqAdmin("5.5.0", tmp, name_server=ns.address).run("queryMsgByOffset", t="Orders", b="broker-a", i=0, o=17)
    message(said)["Queue Offset"] == "17"

The tool prints tables for people. It answers most failures with a stack trace and exit code 0, so ``run`` raises when it sees
one.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.kit.broker import java_command, write_logging
from tests.kit.process import Child, ChildError, Scratch

MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
_NOISE = re.compile(r"^\d\d:\d\d:\d\d,\d{3} \|-.*\n", re.MULTILINE)
TRIES = 8
"""It gives up on an answer after two or three seconds, which a loaded machine may take: then it is run again."""
_TIMEOUT = "RemotingTimeoutException"
_NO_MESSAGE = "finished, but no message."
"""What it says of a key that has no message, and of any answer that asks it to try again later."""
_TRACKS = re.compile(r"^MessageTrack .*", re.MULTILINE | re.DOTALL)


class MqAdmin:
    """Runs its subcommands, one JVM each. ``directory`` takes output and logs."""

    def __init__(self, version: str, directory: Path, *, name_server: str) -> None:
        self.version = version
        self.directory = directory
        self.name_server = name_server

    def run(self, command: str, *, seconds: float = 90.0, fails: bool = False, **options: object) -> str:
        """Run ``command`` with ``-key value`` for each option; what it printed.

        Left out of that: its logging, and the list of all groups that may have consumed a message. ``ChildError`` when it
        prints an exception, unless it ``fails``, and then when it does not. May be called by several threads.
        """
        again = (_TIMEOUT,) if fails else (_TIMEOUT, _NO_MESSAGE)
        for tries in range(1, TRIES + 1):
            code, said = self._once(command, seconds, options)
            if tries == TRIES or not any(reason in said for reason in again):
                break
        failed = code != 0 or re.search(r"^\S*(Exception|Error)\b", said, re.MULTILINE) is not None
        if failed is not fails or _TIMEOUT in said:
            raise ChildError(f"mqadmin {command} ended with {code}:\n{said[-4000:]}")
        return said

    def _once(self, command: str, seconds: float, options: Mapping[str, object]) -> tuple[int, str]:
        """Exit code, and what it printed."""
        self.directory.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=self.directory, prefix=f"mqadmin-{command}-"))
        write_logging(work, "tools")
        scratch = Scratch(work / "tmp")
        java = java_command(self.version, work, 128, MAIN, command, scratch=scratch)
        given = [f"{part}" for key, value in options.items() for part in (f"-{key}", value)]
        child = Child(f"mqadmin {command}", [*java, "-n", self.name_server, *given], work / "out")
        try:
            code = child.wait(seconds)
        finally:
            scratch.remove()
        return code, _TRACKS.sub("", _NOISE.sub("", child.output(last_bytes=1 << 24))).strip()


def message(said: str) -> dict[str, str]:
    """The fields of a message as the tool shows it, without its name of the file into which it has put the body."""
    pairs = re.findall(r"^([A-Z][A-Za-z ]+): +(.*)$", said, re.MULTILINE)
    return {name: value.strip() for name, value in pairs if name != "Message Body Path"}


def body(said: str) -> bytes:
    """The body of the message; the file into which the tool has put it is removed."""
    found = re.search(r"^Message Body Path: +(\S+)$", said, re.MULTILINE)
    if found is None:
        raise LookupError("the tool names no body")
    file = Path(found[1])
    data = file.read_bytes()
    file.unlink()
    return data


def table(said: str) -> list[list[str]]:
    """Rows of a table, cells split at two blanks or more, so not where one fills its column; the head begins with ``#``."""
    lines = said.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("#"))
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines[head + 1 :]]
    return [row for row in rows if len(row) > 1]
