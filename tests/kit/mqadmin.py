"""RocketMQ's own administration tool, ``mqadmin``, from the published jars.

::

    said = MqAdmin("5.5.0", tmp, name_server=ns.address).run("queryMsgByOffset", t="Orders", b="broker-a", i=0, o=17)

The tool prints tables for people. It answers most failures with a stack trace and exit code 0, so ``run`` raises when it sees
one. Nothing here understands what it says: tests look for what they expect.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from tests.kit.broker import java_command
from tests.kit.process import Child, ChildError, Scratch

MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"


class MqAdmin:
    """Runs its subcommands, one JVM each. ``directory`` takes output and logs."""

    def __init__(self, version: str, directory: Path, *, name_server: str) -> None:
        self.version = version
        self.directory = directory
        self.name_server = name_server

    def run(self, command: str, *, seconds: float = 90.0, fails: bool = False, **options: object) -> str:
        """Run ``command`` with ``-key value`` for each option; what it printed.

        An option ``True`` is given without a value. ``ChildError`` when it prints an exception, unless it ``fails``.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        names = (f"mqadmin-{command}-{number}" for number in itertools.count(1))
        name = next(name for name in names if not (self.directory / f"{name}.out").exists())
        scratch = Scratch(self.directory / f"{name}-tmp")
        java = java_command(self.version, self.directory, 128, MAIN, command, scratch=scratch)
        given = [
            word
            for key, value in {"n": self.name_server, **options}.items()
            for word in (f"-{key}", *(() if value is True else (str(value),)))
        ]
        child = Child(f"mqadmin {command} {self.version}", [*java, *given], self.directory / f"{name}.out")
        try:
            code = child.wait(seconds)
        finally:
            scratch.remove()
        said = child.output(last_bytes=1 << 24)
        if not fails and (code != 0 or re.search(r"^\S*(Exception|Error)\b", said, re.MULTILINE)):
            raise ChildError(f"mqadmin {command} ended with {code}:\n{said[-4000:]}")
        return said
