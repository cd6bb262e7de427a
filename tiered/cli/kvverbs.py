"""``tiered kv get``, ``put``, ``cas`` and the others: entries of a view, asked over HTTP.

Keys and values are bytes as the shell gives them; with ``--base64url`` keys are written so, for those that are not text.
"""

from __future__ import annotations

import contextlib
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tiered.cli.options import ConfigFile, JsonFlag, JsonLines, Limit, SetValues, flags, output
from tiered.cli.paging import Paged
from tiered.client.answers import key_of, token
from tiered.client.sync import KeyValueClient
from tiered.daemon.config import environment, load
from tiered.errors import Invalid, NotFound
from tiered.keyvalue import MAX_KEY_BYTES, MOST_KEYS, Condition, Entry, Freshness, ReadRule, check_key
from tiered.text.addresses import split_address
from tiered.text.human import Kind
from tiered.text.output import Column
from tiered.text.values import duration_ms

MOST_VALUE_BYTES = 64 * 1024 * 1024
"""Largest value that any setting allows: what is read of a file or of standard input."""
COLUMNS = (
    Column("key"),
    Column("version"),
    Column("stored_ms", "stored", kind=Kind.TIME, less=2),
    Column("expires_ms", "expires", kind=Kind.TIME, less=1),
    Column("bytes", kind=Kind.SIZE, less=1),
    Column("value", flexible=True),
)
PLAIN_COLUMNS = ("key", "key_base64url", "version", "stored_ms", "expires_ms", "value", "value_base64")
KEYS_COLUMNS, PLAIN_KEYS_COLUMNS = COLUMNS[:4], PLAIN_COLUMNS[:5]
_KINDS = {"stored_ms": Kind.TIME, "expires_ms": Kind.TIME, "bytes": Kind.SIZE}

Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Name of the namespace.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key.")]
Value = Annotated[
    str | None, typer.Argument(metavar="VALUE", help="The value; without it --file, or standard input.")
]
File = Annotated[Path | None, typer.Option("--file", metavar="FILE", help="Read the value from this file.")]
Ttl = Annotated[str | None, typer.Option("--ttl", metavar="TIME", help="It ends after so long: 90s, 30d.")]
IfVersion = Annotated[
    int | None, typer.Option("--if-version", min=0, help="Only if the entry has this version; else exit 6.")
]
Expected = Annotated[
    str | None, typer.Option("--expected", metavar="VALUE", help="What the entry's value must be.")
]
Latest = Annotated[
    bool, typer.Option("--latest", help="See every write that anybody was answered for before.")
]
MaxStale = Annotated[
    str | None,
    typer.Option("--max-stale", metavar="TIME", help="Fail if the view is older: 500ms, 10s."),
]
Encoded = Annotated[bool, typer.Option("--base64url", help="Keys are in base64url, here and in the answer.")]
Server = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="http://host:port of the view; else from kv.http_listen."),
]


def get_command(
    namespace: Namespace,
    key: Key,
    raw: Annotated[bool, typer.Option("--raw", help="The value alone, as it is.")] = False,
    latest: Latest = False,
    max_stale: MaxStale = None,
    base64url: Encoded = False,
    server: Server = None,
    config: ConfigFile = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """An entry: version, times, value. Exit code 5 if there is none."""
    out = output(json)
    wanted = _key(key, base64url)
    with _client(server, config, sets) as client:
        entry = client.get(namespace, wanted, _rule(latest, max_stale))
    if entry is None:
        raise NotFound("there is no entry with this key", namespace=namespace, key=ascii(key[:120]))
    if raw:
        out.raw(entry.value)
    elif json:
        out.record(dict(zip(PLAIN_COLUMNS, _plain_row(entry, base64url), strict=True)))
    else:
        names = [column.name for column in COLUMNS]
        out.record(dict(zip(names, _row(entry, base64url), strict=True)), kinds=_KINDS)


def get_many_command(
    namespace: Namespace,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY]...", help="The keys; without one a line each of standard input."),
    ] = None,
    latest: Latest = False,
    max_stale: MaxStale = None,
    base64url: Encoded = False,
    server: Server = None,
    config: ConfigFile = None,
    sets: SetValues = None,
    json: JsonFlag = False,
    json_lines: JsonLines = False,
) -> None:
    """Entries of several keys, in their order, all as of one moment. Exit code 5 if there is none of one, which is named."""
    out = output(json, json_lines)
    wanted = [_key(key, base64url) for key in keys or _lines()]
    if not 0 < len(wanted) <= MOST_KEYS:
        raise Invalid(
            "so many keys cannot be asked for", found=len(wanted), expected=f"1 to {MOST_KEYS}",
            hint="ask for fewer at once",
        )  # fmt: skip
    with _client(server, config, sets) as client:
        found = client.get_many(namespace, wanted, _rule(latest, max_stale))
    there = [entry for entry in found if entry is not None]
    if json or json_lines:
        out.table(PLAIN_COLUMNS, (_plain_row(entry, base64url) for entry in there))
    else:
        out.table(COLUMNS, (_row(entry, base64url) for entry in there))
    missing = [key for key, entry in zip(wanted, found, strict=True) if entry is None]
    if missing:
        shown = ", ".join(ascii(_shown_key(key, base64url)[:120]) for key in missing[:10])
        raise NotFound(
            "there is no entry with some of the keys", namespace=namespace, missing=len(missing), keys=shown
        )


def put_command(
    namespace: Namespace,
    key: Key,
    value: Value = None,
    file: File = None,
    ttl: Ttl = None,
    if_version: IfVersion = None,
    if_absent: Annotated[
        bool, typer.Option("--if-absent", help="Only if there is no entry; else exit 6.")
    ] = False,
    base64url: Encoded = False,
    server: Server = None,
    config: ConfigFile = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Put a value, and say its version once the view has it."""
    if if_absent and if_version is not None:
        raise Invalid("an entry that must not be has no version", hint="give --if-absent or --if-version")
    condition = Condition(absent=if_absent, version=if_version)
    wanted, content, ttl_ms = _key(key, base64url), _value(value, file), _ttl(ttl)
    with _client(server, config, sets) as client:
        version = client.put(namespace, wanted, content, condition=condition, ttl_ms=ttl_ms)
    output(json).record({"version": version})


def cas_command(
    namespace: Namespace,
    key: Key,
    value: Value = None,
    file: File = None,
    version: Annotated[int | None, typer.Option("--version", min=0, help="What the entry's must be.")] = None,
    expected: Expected = None,
    ttl: Ttl = None,
    base64url: Encoded = False,
    server: Server = None,
    config: ConfigFile = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Compare and set: put a value where the entry is still as it was read. Exit code 6 if it is another."""
    if version is None and expected is None:
        raise Invalid(
            "compare-and-set needs what the entry must be now",
            hint="--version N, or --expected VALUE; for a key that must not exist yet: tiered kv put --if-absent",
        )
    wanted, content, ttl_ms = _key(key, base64url), _value(value, file), _ttl(ttl)
    before = None if expected is None else _bytes(expected)
    with _client(server, config, sets) as client:
        made = client.compare_and_set(
            namespace, wanted, content, version=version, expected=before, ttl_ms=ttl_ms
        )
    output(json).record({"version": made})


def delete_command(
    namespace: Namespace,
    key: Key,
    if_version: IfVersion = None,
    expected: Expected = None,
    base64url: Encoded = False,
    server: Server = None,
    config: ConfigFile = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Delete an entry, whether there is one or not; with --if-version or --expected exit code 6 if it is another."""
    wanted, before = _key(key, base64url), None if expected is None else _bytes(expected)
    with _client(server, config, sets) as client:
        if if_version is None and before is None:
            version = client.delete(namespace, wanted)
        else:
            version = client.compare_and_delete(namespace, wanted, version=if_version, expected=before)
    output(json).record({"version": version})


def list_command(
    namespace: Namespace,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="KEY", help="Only keys that begin with this.")
    ] = "",
    after: Annotated[
        str | None, typer.Option("--after", metavar="KEY", help="Only keys behind this one.")
    ] = None,
    limit: Limit = 0,
    keys_only: Annotated[bool, typer.Option("--keys-only", help="Without values.")] = False,
    latest: Latest = False,
    max_stale: MaxStale = None,
    base64url: Encoded = False,
    server: Server = None,
    config: ConfigFile = None,
    sets: SetValues = None,
    json: JsonFlag = False,
    json_lines: JsonLines = False,
) -> None:
    """Entries in the order of their keys' bytes. A page is --limit entries; the next one begins --after the last of them."""
    out = output(json, json_lines)
    beginning = _key(prefix, base64url) if prefix else b""
    behind = None if after is None else _key(after, base64url)
    rule = _rule(latest, max_stale)
    with _client(server, config, sets) as client:
        found = client.entries(
            namespace, beginning, after=behind, rule=rule, keys_only=keys_only,
            count=min(limit + 1, MOST_KEYS) if limit else MOST_KEYS,
        )  # fmt: skip
        page = Paged(found, limit)
        if json or json_lines:
            plain = PLAIN_KEYS_COLUMNS if keys_only else PLAIN_COLUMNS
            out.table(plain, (_plain_row(entry, base64url)[: len(plain)] for entry in page))
        else:
            columns = KEYS_COLUMNS if keys_only else COLUMNS
            out.table(columns, (_row(entry, base64url)[: len(columns)] for entry in page))
        page.note_more(out, "entries", lambda entry: _shown_key(entry.key, base64url))


def create_command(
    namespace: Namespace,
    server: Server = None,
    config: ConfigFile = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Make a namespace: a topic with one queue at the broker. It may be there already."""
    with _client(server, config, sets) as client:
        created = client.create(namespace)
    output(json).record({"namespace": namespace, "created": created})


def namespaces_command(
    server: Server = None, config: ConfigFile = None, sets: SetValues = None, json: JsonFlag = False
) -> None:
    """Namespaces that the view knows."""
    with _client(server, config, sets) as client:
        found = client.namespaces()
    output(json).table(("namespace",), ((name,) for name in found))


@contextlib.contextmanager
def _client(server: str | None, config: Path | None, sets: list[str] | None) -> Iterator[KeyValueClient]:
    settings = load(config, environment(), flags(sets=sets)).settings.kv
    seconds = (
        settings.timeout_ms * 4 / 1000
    )  # the server says by itself, after three times as long, that it does not know
    url = server or _local_url(settings.http_listen)
    with KeyValueClient(url, token=settings.http_token, timeout=seconds) as made:
        yield made


def _local_url(listen: str) -> str:
    """Where a view with this setting is reached from its own machine."""
    host, port = split_address(listen, key="kv.http_listen", listening=True)
    if not port:
        raise Invalid("the port of the view is not known", key="kv.http_listen", hint="give --server URL")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  (all addresses: one of them)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _bytes(text: str) -> bytes:
    """What the shell was given, byte for byte."""
    return text.encode("utf-8", "surrogateescape")


def _key(text: str, encoded: bool) -> bytes:
    if not encoded:
        return check_key(_bytes(text))
    try:
        return check_key(key_of(text.rstrip("=")))
    except ValueError:
        raise Invalid(
            "this is not base64url", found=ascii(text[:120]), hint="leave --base64url out"
        ) from None


def _value(text: str | None, file: Path | None) -> bytes:
    if text is not None and file is not None:
        raise Invalid("two values are given", hint="give the value, or --file")
    if text is not None:
        return _bytes(text)
    if file is None:
        found = sys.stdin.buffer.read(MOST_VALUE_BYTES + 1)
    else:
        try:
            with file.open("rb") as opened:
                found = opened.read(MOST_VALUE_BYTES + 1)
        except OSError as error:
            raise Invalid(
                "the file cannot be read", path=file, found=error.strerror, hint="look at --file"
            ) from error
    if len(found) > MOST_VALUE_BYTES:
        raise Invalid(
            "the value is too large", expected=f"at most {MOST_VALUE_BYTES} bytes", hint="divide it"
        )
    return found


def _lines() -> list[str]:
    """Lines of standard input, byte for byte; no more than are refused for being too many."""
    found = sys.stdin.buffer.read(MOST_KEYS * (2 * MAX_KEY_BYTES))
    return [line.decode("utf-8", "surrogateescape") for line in found.splitlines() if line]


def _ttl(text: str | None) -> int | None:
    return None if text is None else duration_ms("--ttl", text)


def _rule(latest: bool, max_stale: str | None) -> ReadRule:
    stale_ms = None if max_stale is None else duration_ms("--max-stale", max_stale)
    return ReadRule(Freshness.LATEST if latest else Freshness.ANY, stale_ms)


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _shown_key(key: bytes, encoded: bool) -> str:
    text = None if encoded else _text(key)
    return token(key) if text is None else text


def _row(entry: Entry, encoded: bool) -> tuple[object, ...]:
    text = _text(entry.value)
    return (
        _shown_key(entry.key, encoded), entry.version, entry.stored_ms, entry.expires_ms, len(entry.value),
        f"(base64) {b64encode(entry.value).decode()}" if text is None else text,
    )  # fmt: skip


def _plain_row(entry: Entry, encoded: bool) -> tuple[object, ...]:
    """Texts where they are texts, else base64: one of the two is null."""
    key, value = None if encoded else _text(entry.key), _text(entry.value)
    return (
        key, token(entry.key) if key is None else None, entry.version, entry.stored_ms, entry.expires_ms,
        value, b64encode(entry.value).decode() if value is None else None,
    )  # fmt: skip
