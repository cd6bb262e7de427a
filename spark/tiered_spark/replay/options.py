"""The options of ``df.write.format("rocketmq_tiered_replay")``, parsed and checked in one place."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tiered.codec.remoting.signing import Credentials
from tiered.errors import Invalid
from tiered.text.addresses import split_address
from tiered_spark.optionvalues import Parsers, flag, number, one_of, parsed, whole, wrong
from tiered_spark.snapshot import shared_provider

QUEUES = ("same", "hash", "spread")
ON_ERROR = ("fail", "skip")
GROUP = "TIERED_SPARK_REPLAY"
ACCESS_KEY, SECRET_KEY = "ROCKETMQ_ACCESS_KEY", "ROCKETMQ_SECRET_KEY"

_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,127}\Z")
_REPLAY_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SECRETS = ("accesskey", "secretkey", "signature", "securitytoken", "password", "token", "secret")


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """One replay. No secret is in it: it travels with the plan.

    ``rate``: messages a second of all tasks together, ``None`` without limit; ``tasks`` share it. ``every``: acknowledged
    messages after which a task notes its progress. ``access_env``, ``secret_env``: names of variables of the executors'
    environment, empty for the usual ones.
    """

    name_servers: tuple[str, ...]
    topic: str
    group: str = GROUP
    queue: str = "same"
    rate: float | None = None
    tasks: int = 1
    timeout_ms: int = 5_000
    retries: int = 12
    in_flight: int = 64
    tls: bool = False
    tls_ca: str = ""
    access_env: str = ""
    secret_env: str = ""
    checkpoint: str = ""
    replay_id: str = ""
    every: int = 10_000
    on_error: str = "fail"

    @property
    def task_rate(self) -> float | None:
        """One task's share of ``rate``."""
        return None if self.rate is None else self.rate / self.tasks

    def credentials(self) -> Credentials | None:
        """The key pair in this process's environment; ``None`` if it has none. ``Invalid`` if one half is missing, or a
        variable that an option names."""
        found = []
        for named, usual in ((self.access_env, ACCESS_KEY), (self.secret_env, SECRET_KEY)):
            value = os.environ.get(named or usual)  # noqa: TID251 - secrets must not travel with the plan
            if named and not value:
                raise _no_variable(named)
            found.append(value)
        access, secret = found
        if not access and not secret:
            return None
        if not access or not secret:
            raise _no_variable((self.secret_env or SECRET_KEY) if access else (self.access_env or ACCESS_KEY))
        return Credentials(access, secret)


def _no_variable(name: str) -> Invalid:
    return Invalid(
        "a variable with a key of the broker is not set on this executor", variable=name,
        hint="set it in the environment that executors start in",
    )  # fmt: skip


def parse_replay_options(given: Mapping[str, str]) -> ReplayOptions:
    """``Invalid`` names the option, its value and the fix; never the value of one that may be a secret."""
    values: dict[str, object] = {}
    for name, value in given.items():
        if name.lower() in _SECRETS:
            raise Invalid(
                "keys of the broker do not go into options, which are part of the plan", option=name,
                hint=f"set {ACCESS_KEY} and {SECRET_KEY} in the executors' environment, or name others with accessKeyEnv and "
                "secretKeyEnv",
            )  # fmt: skip
        values.update([parsed(_PARSERS, name, value)])
    for name, example in (("namesrv", "127.0.0.1:9876"), ("topic", "Orders_again")):
        if _PARSERS[name][0] not in values:
            raise Invalid(
                "the target of the replay is not named", option=name, hint=f"option('{name}', '{example}')"
            )
    options = ReplayOptions(**values)  # type: ignore[arg-type]
    _check(options)
    return options


def _check(options: ReplayOptions) -> None:
    """What several options must be together."""
    if options.checkpoint and not options.replay_id:
        raise Invalid(
            "a checkpoint needs a name for this replay", option="replayId",
            hint="option('replayId', 'orders-2026-10'): a query that runs again with it leaves out what was acknowledged",
        )  # fmt: skip
    if options.tls_ca and not options.tls:
        raise Invalid("tlsCa is set without tls", option="tls", hint="option('tls', 'true')")
    if options.checkpoint:
        shared_provider(options.checkpoint)  # an URL that nothing understands is said now


def _addresses(name: str, value: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in re.split("[;,]", value) if part.strip())
    for address in found:
        try:
            split_address(address, key=name)
        except Invalid:
            raise wrong(name, value, "host:port, several joined with ;") from None
    if not found:
        raise wrong(name, repr(value), "host:port, several joined with ;")
    return found


def _matching(pattern: re.Pattern[str], expected: str) -> Callable[[str, str], str]:
    def parse(name: str, value: str) -> str:
        if not pattern.match(value):
            raise wrong(name, repr(value), expected)
        return value

    return parse


def _text(name: str, value: str) -> str:
    if not value.strip():
        raise wrong(name, repr(value), "a string that is not empty")
    return value.strip()


_NAME = "1 to 127 letters, digits, and any of _ - % |"

_PARSERS: Parsers = {
    "namesrv": ("name_servers", _addresses),
    "topic": ("topic", _matching(_TOPIC, _NAME)),
    "producerGroup": ("group", _matching(_TOPIC, _NAME)),
    "queue": ("queue", one_of(QUEUES)),
    "messagesPerSecond": ("rate", number(0.001, 1e9)),
    "tasks": ("tasks", whole(1, 100_000)),
    "timeoutMs": ("timeout_ms", whole(1, 600_000)),
    "retries": ("retries", whole(0, 1_000)),
    "maxInFlight": ("in_flight", whole(1, 1_024)),
    "tls": ("tls", flag),
    "tlsCa": ("tls_ca", _text),
    "accessKeyEnv": ("access_env", _matching(_VARIABLE, "the name of a variable")),
    "secretKeyEnv": ("secret_env", _matching(_VARIABLE, "the name of a variable")),
    "checkpoint": ("checkpoint", _text),
    "replayId": (
        "replay_id",
        _matching(_REPLAY_ID, "1 to 64 letters, digits, and any of _ - . but no . at the beginning"),
    ),
    "checkpointEvery": ("every", whole(1, 1_000_000)),
    "onError": ("on_error", one_of(ON_ERROR)),
}
