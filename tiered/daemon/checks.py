"""Checks across sections: what value bounds cannot see. Pure: no file is touched here."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from tiered.archive.rewrite.policy import policy_from
from tiered.daemon.config import Loaded, where_to_set
from tiered.errors import Invalid, Refused
from tiered.filter.storagelevels import StorageLevels
from tiered.filter.tenants import TenantRules
from tiered.filter.topicpolicy import TopicPolicy
from tiered.settings import ONE_DAY_MS, Settings
from tiered.settings.writing import SHORTEST_WAIT_MS
from tiered.text.addresses import split_address
from tiered.text.human import duration
from tiered.text.values import time_ms

UNSEEN_RESTARTS = (
    "source.commitlog_dirs is set without source.store_dir: the broker's lock and abort files are not looked at, so a restart "
    "of the broker, and a tail that it lost, are only noticed at the daemon's own next start, and bytes of a former run of the "
    "broker may be taken for new records; "
    "set source.store_dir to the broker's storePathRootDir as well"
)


def require(loaded: Loaded, *needed: str) -> None:
    """Raise ``Invalid`` for the first of the dotted keys in ``needed`` that is empty, saying where to set it.

    ``source.store_dir`` counts as given when ``source.commitlog_dirs`` is.
    """
    for key in needed:
        section, name = key.split(".")
        given = getattr(getattr(loaded.settings, section), name)
        if key == "source.store_dir":
            given = loaded.settings.commitlog_directories
        if not given:
            raise Invalid(f"{key} is not set", hint=where_to_set(key, loaded))


def check(loaded: Loaded, *, writer: bool = False) -> None:
    """Every check that needs two settings at once; ``writer`` adds what ``tiered run`` needs. First failure raises."""
    settings = loaded.settings
    _lasting(settings)
    _source(settings)
    _credentials(settings)
    _relations(settings)
    _places(settings)
    _replay(settings)
    _patterns(settings)
    _membership(settings)
    if writer:
        require(loaded, "source.store_dir", "archive.url")


_DOORS = {
    "gateway": (("http_listen", "http_token"),),
    "serve": (("listen", "token"), ("http_listen", "http_token")),
    "kv": (("http_listen", "http_token"),),
}
"""What messages and keys are given out at, by section: the setting of the address, and that of the token."""


def check_doors(settings: Settings, *sections: str) -> None:
    """``Refused`` if a process that serves ``sections`` would give messages, or take writes, from elsewhere without a token."""
    for section in sections if not settings.web.open else ():
        for listen, token in _DOORS[section]:
            values = getattr(settings, section)
            address = getattr(values, listen)
            if address and not getattr(values, token) and not _loopback(address, f"{section}.{listen}"):
                raise Refused(
                    f"{section}.{listen} is not a loopback address and {section}.{token} is not set: anyone who reaches it"
                    f" could read all messages{', and write keys' if section == 'kv' else ''}",
                    found=address,
                    hint=f"{where_to_set(f'{section}.{token}')}; or listen on 127.0.0.1; or, if it is meant, web.open = true",
                )


def _loopback(address: str, key: str) -> bool:
    host, _ = split_address(address, key=key, listening=True)
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def _membership(settings: Settings) -> None:
    """Whom gateways ask is named by one setting."""
    if settings.gateway.membership and settings.gateway.read_nodes:
        raise Invalid(
            "gateway.read_nodes and gateway.membership are both set",
            hint="unset gateway.read_nodes: nodes that announce themselves need not be named",
            found=", ".join(settings.gateway.read_nodes)[:200],
        )


def cautions(settings: Settings) -> tuple[str, ...]:
    """What is accepted and should be known: a sentence each, with the key that changes it."""
    said = []
    if settings.source.commitlog_dirs and not settings.source.store_dir:
        said.append(UNSEEN_RESTARTS)
    needed_ms = _longest_put_ms(settings)
    if settings.watchdog.fatal_ms < needed_ms:
        said.append(
            f"watchdog.fatal_ms is {settings.watchdog.fatal_ms}, but while the store does not answer one upload may take"
            f" {needed_ms} ms (store.attempts tries of store.read_timeout_ms, paced by store.max_bytes_per_second): raise it,"
            " or the daemon ends in an outage that it could outlast"
        )
    if settings.retain.keep_ms and settings.store.object_lock_ms > settings.retain.keep_ms:
        said.append(
            "store.object_lock_ms is longer than retain.keep_ms: what retention takes is no longer served, and is stored and"
            " paid for until its lock ends"
        )
    said += _idle(settings)
    return tuple(said)


def _idle(settings: Settings) -> Iterator[str]:
    """What is asked for, and another setting keeps from being done."""
    limits = not policy_from(settings.retain).forever
    if not settings.maintenance.enabled and (limits or settings.gc.enabled == "true"):
        yield (
            "maintenance.enabled is false: nothing is trimmed by retain.* or deleted by gc.enabled unless tiered maintain"
            " --once is run, while no daemon is"
        )
    if limits and not settings.retain.max_trim_percent:
        yield (
            "retain.max_trim_percent is 0: every run of retention that has something to trim is refused, until tiered retain"
            " --max-trim-percent is asked for it"
        )
    if settings.scrub.copy_url and settings.scrub.copy_url.rstrip("/") == settings.archive.url.rstrip("/"):
        yield "scrub.copy_url names the archive itself: nothing that is damaged there can be mended from it"


def _longest_put_ms(settings: Settings) -> int:
    """Milliseconds until a put of one object gives up: every try waits its turn at the throttle and then for an answer."""
    store = settings.store
    rate = store.max_bytes_per_second
    paced_ms = settings.dispatch.object_bytes * 1000 // rate if rate else 0
    return store.attempts * (store.read_timeout_ms + paced_ms)


def start_is_valid(text: str) -> bool:
    """True for earliest, latest, a store time in milliseconds, or an ISO 8601 time."""
    return text in ("earliest", "latest") or time_ms(text) is not None


def _lasting(settings: Settings) -> None:
    url = settings.archive.url
    if url.removeprefix("fsspec+").startswith("memory:"):
        raise Refused(
            "archive.url names an archive in memory, which ends with the process: it is for tests only",
            found=url,
            hint="name a directory (file:///…), a bucket (s3://bucket/prefix) or what fsspec reaches",
        )


def _source(settings: Settings) -> None:
    source = settings.source
    if not start_is_valid(source.start):
        raise Invalid(
            "source.start must be earliest, latest, milliseconds since 1970 or an ISO 8601 time",
            found=source.start,
            hint='for example start = "2026-01-31T00:00:00+00:00"',
        )
    for key, value in (("source.cluster", source.cluster), ("source.broker", source.broker)):
        if not value or any(ord(c) < 32 for c in value):
            raise Invalid(
                f"{key} must be a name without control characters", found=repr(value), hint=where_to_set(key)
            )


def _credentials(settings: Settings) -> None:
    store = settings.store
    if bool(store.access_key_id) != bool(store.secret_access_key):
        missing = "secret_access_key" if store.access_key_id else "access_key_id"
        raise Invalid(
            "static credentials are incomplete",
            missing=f"store.{missing}",
            hint=where_to_set(f"store.{missing}"),
        )
    if store.session_token and not store.access_key_id:
        raise Invalid(
            "store.session_token needs a static key",
            missing="store.access_key_id",
            hint=where_to_set("store.access_key_id"),
        )
    if store.sse_kms_key_id and store.sse != "aws:kms":
        raise Invalid(
            "store.sse_kms_key_id is used with KMS only",
            found=f"store.sse={store.sse!r}",
            hint='set sse = "aws:kms"',
        )
    _object_lock(settings)


def _object_lock(settings: Settings) -> None:
    """What has to go with ``store.object_lock``; whether the bucket can do it is asked of the store at a start."""
    store = settings.store
    if bool(store.object_lock) != bool(store.object_lock_ms):
        missing = "store.object_lock_ms" if store.object_lock else "store.object_lock"
        raise Invalid("Object Lock needs a mode and a time", missing=missing, hint=where_to_set(missing))
    if store.object_lock and settings.archive.url and urlsplit(settings.archive.url).scheme.lower() != "s3":
        raise Refused(
            "store.object_lock is for S3 only",
            found=settings.archive.url,
            hint="name an S3 bucket in archive.url, or set store.object_lock to nothing",
        )
    if store.object_lock and not store.checksum:
        raise Invalid(
            "S3 takes no object to be locked without a checksum",
            missing="store.checksum",
            hint=where_to_set("store.checksum"),
        )


def _relations(settings: Settings) -> None:
    dispatch, store, archive, dog = settings.dispatch, settings.store, settings.archive, settings.watchdog
    gc = settings.gc
    pairs = (
        ("gc.snapshot_retention_ms", gc.snapshot_retention_ms, "gc.grace_ms", gc.grace_ms),
        ("dispatch.block_bytes", dispatch.block_bytes, "dispatch.object_bytes", dispatch.object_bytes),
        (
            "dispatch.block_bytes",
            dispatch.block_bytes,
            "dispatch.group_commit_bytes",
            dispatch.group_commit_bytes,
        ),
        ("store.retry_base_ms", store.retry_base_ms, "store.retry_max_ms", store.retry_max_ms),
        ("watchdog.stuck_ms", dog.stuck_ms, "watchdog.fatal_ms", dog.fatal_ms),
    )
    for small_key, small, large_key, large in pairs:
        if small > large:
            raise Invalid(
                f"{small_key} must not exceed {large_key}",
                found=f"{small} > {large}",
                hint=where_to_set(large_key),
            )
    if gc.commit_retention_ms <= gc.grace_ms:  # a commit that is gone then named its keys a grace ago
        raise Invalid(
            "gc.commit_retention_ms must be longer than gc.grace_ms",
            found=f"{gc.commit_retention_ms} <= {gc.grace_ms}", hint=where_to_set("gc.commit_retention_ms"),
        )  # fmt: skip
    if 0 < archive.takeover_wait_ms < SHORTEST_WAIT_MS:
        raise Invalid(
            "archive.takeover_wait_ms is too short to tell a writer that lives from one that is gone",
            found=archive.takeover_wait_ms,
            expected=f"0, or at least {SHORTEST_WAIT_MS} ms",
            hint=where_to_set("archive.takeover_wait_ms"),
        )


def _replay(settings: Settings) -> None:
    replay = settings.replay
    if replay.enabled:
        split_address(replay.broker_address, key="replay.broker_address")
    if bool(replay.access_key) != bool(replay.secret_key):
        missing = "replay.secret_key" if replay.access_key else "replay.access_key"
        raise Invalid("the broker's key pair is incomplete", missing=missing, hint=where_to_set(missing))


def _patterns(settings: Settings) -> None:
    TopicPolicy(settings.source.exclude_topics)
    StorageLevels(settings.fetch.storage_level, settings.fetch.topic_storage_levels)
    TenantRules(settings.tenants)
    _ages(settings)
    if not all(pattern.strip() for pattern in settings.replay.groups):
        raise Invalid(
            "replay.groups holds an empty pattern",
            hint="remove it, or name a group; an empty list means every group that is seen",
        )


def _ages(settings: Settings) -> None:
    """What retention would take before its day is sealed is sealed for nothing, or never."""
    policy, seal = policy_from(settings.retain), settings.seal
    sealed_ms = seal.min_age_ms + ONE_DAY_MS
    rules = [
        ("retain.keep_ms", "", policy.default),
        *(("retain.topics", p, rule) for p, rule in policy.patterns),
    ]
    for key, pattern, rule in rules if seal.enabled else ():
        if rule.keep_ms is not None and rule.keep_ms < sealed_ms:
            raise Invalid(
                "retention is shorter than the sealing age: messages would go before their day is sealed",
                key=key, found=f"{pattern}={duration(rule.keep_ms)}".lstrip("="),
                expected=f"at least seal.min_age_ms and a day, {duration(sealed_ms)}",
                hint=f"raise {key}, lower seal.min_age_ms, or set seal.enabled = false",
            )  # fmt: skip


def _places(settings: Settings) -> None:
    """Hold, state and a local archive stand beside the broker's directories, never inside: the broker reads them all."""
    broker = [("source.store_dir", settings.source.store_dir)] if settings.source.store_dir else []
    broker += [("source.commitlog_dirs", directory) for directory in settings.commitlog_directories]
    hold, state = settings.hold_directory, settings.state_directory
    own = [
        ("hold.directory", hold),
        ("state.directory", state),
        ("archive.url", _local_archive(settings.archive.url)),
    ]
    for key, path in own:
        for broker_key, broker_path in broker:
            if path and inside(path, broker_path):
                raise Invalid(
                    f"{key} lies inside the broker's own directory, which the broker reads, counts and deletes from",
                    found=path,
                    broker=f"{broker_key}={broker_path}",
                    hint=f"choose a directory beside it; {where_to_set(key)}",
                )
    _apart(own)


def _apart(own: Iterable[tuple[str, str]]) -> None:
    present = [(key, path) for key, path in own if path]
    for key, path in present:
        for other_key, other in present:
            if key != other_key and inside(path, other):
                raise Invalid(
                    f"{key} lies inside {other_key}: each needs a directory of its own",
                    found=path,
                    other=other,
                    hint=where_to_set(key),
                )


def _local_archive(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return unquote(parts.path)
    return url if url.startswith("/") else ""


def inside(path: str, directory: str) -> bool:
    """True if ``path`` is ``directory`` or below it, by name (links are not followed)."""
    inner, outer = os.path.abspath(path), os.path.abspath(directory)
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")
