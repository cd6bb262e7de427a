"""Which tables are kept up to date: standing orders of the bucket, the same for every host that may work on the archive."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from urllib.parse import parse_qsl

from tiered.archive.keys import ArchiveKeys
from tiered.archive.standing import TABLE, Order, drop_order, put_order, read_orders
from tiered.errors import Conflict, Invalid, NotFound
from tiered.provider.base import Provider

ICEBERG = "iceberg"
EMBEDDED = "embedded"
"""The catalog in a file of the state directory."""

_NAME = re.compile(r"[\w-]{1,100}")
"""Of a table, and of each part of a namespace: it becomes a folder of the catalog's, and a word of an engine's SQL."""
_SECRET_WORDS = (
    "secret", "password", "passwd", "token", "credential", "access-key", "access_key", "account-key", "account_key", "api-key",
    "api_key", "authorization", "connection-string", "connection_string",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KeptTables:
    """Tables of one catalog. ``catalog``: ``EMBEDDED``, a URI, ``glue``, or a name of pyiceberg's own configuration;
    ``properties``: what pyiceberg is told beside it; ``table``: the one table of all topics, or empty: one for each;
    ``topics``: patterns of those shown."""

    catalog: str
    properties: Mapping[str, str]
    namespace: str
    table: str = ""
    topics: tuple[str, ...] = ("*",)
    kind: str = ICEBERG

    @property
    def name(self) -> str:
        """How people call them."""
        return f"{self.catalog}:{self.namespace}"


@dataclass(frozen=True, slots=True)
class StoredTables:
    """An order of the bucket; ``created_ms``: by the clock of the host that put it."""

    order_id: bytes
    tables: KeptTables
    created_ms: int
    dropped: bool


def read_tables(provider: Provider, keys: ArchiveKeys, archive_id: bytes) -> list[StoredTables]:
    """Every order, dropped ones too, by creation. ``Corrupt`` for one that cannot be read."""
    return [_stored(order) for order in read_orders(provider, keys, archive_id, TABLE)]


def tables_in_force(provider: Provider, keys: ArchiveKeys, archive_id: bytes) -> list[StoredTables]:
    """What is to be kept up to date."""
    return [stored for stored in read_tables(provider, keys, archive_id) if not stored.dropped]


def add_tables(
    provider: Provider,
    keys: ArchiveKeys,
    archive_id: bytes,
    tables: KeptTables,
    now_ms: int,
    random_bytes: Callable[[int], bytes],
) -> StoredTables:
    """Put an order. ``Invalid`` where it holds a secret; ``Conflict`` if these tables are kept already."""
    check_tables(tables)
    if any(stored.tables.name == tables.name for stored in tables_in_force(provider, keys, archive_id)):
        raise Conflict(
            "tables of this namespace and catalog are kept already", found=tables.name,
            hint="tiered table list shows them; give another --namespace, or tiered table disable them first",
        )  # fmt: skip
    made = StoredTables(random_bytes(16), tables, now_ms, dropped=False)
    put_order(provider, keys, archive_id, TABLE, made.order_id, {"created_ms": now_ms, **asdict(tables)})
    return made


def drop_tables(provider: Provider, keys: ArchiveKeys, archive_id: bytes, name: str) -> StoredTables:
    """Say that tables are no longer kept: by ``KeptTables.name``, or by their namespace where it tells which."""
    in_force = tables_in_force(provider, keys, archive_id)
    found = [stored for stored in in_force if name in (stored.tables.name, stored.tables.namespace)]
    if len(found) != 1:
        raise NotFound(
            "no tables of this name are kept" if not found else "tables of several catalogs are kept under this name",
            found=name, expected=", ".join(stored.tables.name for stored in in_force) or "none",
            hint="`tiered table list` shows them",
        )  # fmt: skip
    drop_order(provider, keys, TABLE, found[0].order_id)
    return found[0]


def check_tables(tables: KeptTables) -> None:
    """``Invalid`` where an order could not be kept, or would put a secret into the bucket."""
    elsewhere = "give it to pyiceberg itself: PYICEBERG_CATALOG__TIERED__… variables, or ~/.pyiceberg.yaml"
    secret = next(
        (name for name, value in tables.properties.items() if _secret(name) or _holds_password(value)), None
    )
    if secret is not None:
        raise Invalid("secrets do not belong into the bucket", option=secret, hint=elsewhere)
    if _holds_password(tables.catalog):
        raise Invalid("the catalog's URI must not hold a password", option="--catalog", hint=elsewhere)
    check_names(tables)
    if not tables.topics or not all(pattern.strip() for pattern in tables.topics):
        raise Invalid(
            "a pattern of topics is empty", option="--topic", hint="name topics, or leave it out: all of them"
        )


def _secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_WORDS)


def _holds_password(text: str) -> bool:
    """Whether it is a URI with a password, before its host or among its parameters."""
    if "://" not in text:
        return False
    _, _, rest = text.partition("://")
    host, _, query = rest.partition("?")
    before, at, _ = host.rpartition("@")
    user, slash, _ = before.partition("/")
    _, colon, password = user.partition(":")
    port = slash and password.isdigit()  # of a host; the @ is then one of a path
    return bool(at and colon and not port) or any(_secret(name) for name, _ in parse_qsl(query))


def check_names(tables: KeptTables) -> None:
    """``Invalid`` for a name that would lead out of the catalog's own place, or to another table than it says. Also of an order
    that stands in the bucket: whoever may write there is not thereby one who may choose folders on this host."""
    allowed = "1 to 100 letters, digits, _ and -"
    if not all(map(_NAME.fullmatch, tables.namespace.split("."))):
        raise Invalid(
            "a namespace has a name, or several with dots between", option="--namespace", found=repr(tables.namespace),
            expected=allowed, hint="give another --namespace; tiered table disable ends an order that has this one",
        )  # fmt: skip
    if tables.table and not _NAME.fullmatch(tables.table):
        raise Invalid(
            "a table's name has no dots, slashes or other marks", option="--one-table", found=repr(tables.table),
            expected=allowed, hint="give another --one-table; tiered table disable ends an order that has this one",
        )  # fmt: skip


def _stored(order: Order) -> StoredTables:
    fields = order.fields
    names = ("catalog", "properties", "namespace", "table", "kind")
    tables = KeptTables(topics=tuple(fields["topics"]), **{name: fields[name] for name in names})
    return StoredTables(order.order_id, tables, fields["created_ms"], order.dropped)
