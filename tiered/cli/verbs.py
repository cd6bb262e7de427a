"""The verbs of ``tiered`` by what one wants of them, an example of each, and how its help shows them and the exit codes."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from itertools import chain
from typing import Any

import typer.core

from tiered.cli.entry import EXIT_INTERRUPTED
from tiered.errors import (
    EXIT_INCOMPLETE,
    EXIT_UNEXPECTED,
    Conflict,
    Corrupt,
    Fenced,
    Invalid,
    NotFound,
    Refused,
    TieredError,
    Unavailable,
)

EXIT_NO_READER = 128 + signal.SIGPIPE

EXIT_CODES: Mapping[int, str] = {
    0: "success",
    TieredError.exit_code: "damage found, or a general error",
    Invalid.exit_code: "input or settings are wrong",
    Refused.exit_code: "declined, because a guarantee would be lost",
    Unavailable.exit_code: "store, broker or disk does not answer, or refuses: try again",
    NotFound.exit_code: "queue, offset, key or file is not there",
    Conflict.exit_code: "another writer created it first",
    Fenced.exit_code: "another writer owns the archive",
    Corrupt.exit_code: "bytes are not what their checksum or format says; "
    "of run --once: the commitlog is damaged, the rest is archived",
    EXIT_INCOMPLETE: "of sink verify: no difference found, and not all could be compared",
    EXIT_UNEXPECTED: "a bug: --debug shows the traceback",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_NO_READER: "the reader of standard output went away",
}

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Everyday": {
        "doctor": "Check everything a daemon needs, with a fix for each problem.",
        "run": "Archive a broker: the daemon.",
        "status": "Lag, offsets and health of one archive.",
        "topics": "Archived topics.",
        "queues": "Archived queues with their offsets.",
        "groups": "Offsets of the broker's subscription groups beside what is archived.",
        "read": "Messages of a queue, as table, JSON or the broker's own bytes.",
        "query": "Find messages by key, message id or time.",
        "verify": "Check an archive; --deep re-reads every byte.",
        "gaps": "Messages that are lost for good: when, why and of which queues.",
    },
    "Care": {
        "maintain": "Merge small runs now; a daemon does it by itself.",
        "scrub": "What the daemon's walks over the bucket found; --once looks now.",
        "repair": "Repair damaged or lost commits from what is left of them.",
        "retain": "What retention takes from queues, and why.",
        "hold": "Legal holds: what retention must not take.",
        "gc": "What nothing refers to any more, and what waits to be deleted.",
        "key": "Keys of an encrypted archive: make, list, wrap again.",
        "config": "Show, check or generate settings.",
    },
    "Products": {
        "gateway": "Let consumers read old offsets: sits in front of name server and brokers.",
        "serve": "Read the archive for gateways: a read node, without broker and disk.",
        "nodes": "Read nodes that have announced themselves, and what they say.",
        "placement": "Which read node busy queues have by predicted load; --publish tells gateways.",
        "replay": "Send archived messages to a POP group that missed them; list what it is owed.",
        "kv": "Keys and values over a broker's log: put, get, compare-and-set.",
        "sink": "Destinations that the log is replicated to, without losing a message.",
        "table": "Tables of other engines (Iceberg) over the sealed files.",
        "spark": "Jobs on the archive by Spark; without a name it lists them.",
    },
    "Beside": {
        "gen": "Write a broker-format store for demos and tests.",
        "completion": "A script for the shell that completes verbs and flags.",
    },
}

VERBS: Mapping[str, str] = dict(chain.from_iterable(group.items() for group in GROUPS.values()))

_AT = "--archive s3://my-bucket/rocketmq"
EXAMPLES: Mapping[str, str] = {
    "doctor": f"doctor --store ~/store {_AT}",
    "run": f"run --store ~/store {_AT}",
    "status": f"status {_AT} --store ~/store",
    "topics": f"topics {_AT} --prefix Order --limit 100",
    "queues": f"queues {_AT} --topic Orders",
    "groups": f"groups {_AT} --store ~/store --prefix Order",
    "read": f"read {_AT} --topic Orders --queue 0 --offset 0 --count 10",
    "query": f"query {_AT} --topic Orders --key order-17",
    "verify": f"verify {_AT} --deep",
    "gaps": f"gaps {_AT}",
    "maintain": f"maintain --once --store ~/store {_AT}",
    "scrub": f"scrub --once {_AT}",
    "repair": f"repair --apply --store ~/store {_AT}",
    "retain": f"retain --dry-run {_AT}",
    "hold": f"hold add case-7 --topic 'Orders*' --from 2026-01-01 {_AT}",
    "gc": f"gc --dry-run {_AT}",
    "key": f"key list {_AT}",
    "config": "config print",
    "gateway": f"gateway --namesrv 10.0.0.5:9876 {_AT}",
    "serve": f"serve {_AT}",
    "nodes": f"nodes {_AT}",
    "placement": f"placement {_AT}",
    "replay": f"replay status --store ~/store {_AT}",
    "kv": "kv put settings colour blue",
    "sink": f"sink add copy --kind file --option location=file:///data/out {_AT}",
    "table": f"table enable iceberg {_AT}",
    "spark": f"spark profile {_AT}",
    "gen": "gen --store /tmp/store --messages 100000 --queues 4 --topics 2",
    "completion": "completion bash",
}


_WHOLE = 1000
"""Characters of a summary; longer ones would be cut."""


def example(verb: str) -> str:
    """The end of a verb's help: lines that are not wrapped."""
    return f"\b\nExample:\n  tiered {EXAMPLES[verb]}"


class SubverbGroup(typer.core.TyperGroup):
    """A verb that has verbs of its own: its help lists them, each with its whole first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, at.get_short_help_str(_WHOLE)) for name, at in self.commands.items()])


class VerbGroup(typer.core.TyperGroup):
    """The program: its help lists the verbs by group, each summary whole, and the exit codes as a table."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs."""
        for name, verbs in GROUPS.items():
            with formatter.section(name):
                formatter.write_dl(list(verbs.items()))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the exit codes."""
        formatter.write_paragraph()
        formatter.write_text("tiered help VERB shows a verb's options and an example.")
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])
