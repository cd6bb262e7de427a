"""The kind *iceberg*: its options, and how it is opened."""

from __future__ import annotations

import re

from tiered.errors import Invalid
from tiered.sink.base import Sink
from tiered.sink.comparison.base import ReadBack
from tiered.sink.iceberg.reading import IcebergReadBack
from tiered.sink.iceberg.sink import IcebergSink
from tiered.sink.kinds import SinkPlace
from tiered.sink.optionvalues import known_options, needed, refuse_order
from tiered.sink.order import SinkOrder
from tiered.table.catalog import open_catalog, require_pyiceberg
from tiered.table.orders import EMBEDDED, KeptTables
from tiered.text.references import resolve

PROPERTY = "catalog."
_TABLE = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)+\Z")


class IcebergKind:
    """``catalog``: a URI (of a REST catalog, or ``sqlite:////path``), ``glue``, or a name of pyiceberg's configuration;
    ``catalog.PROPERTY``: what pyiceberg is told beside it; ``table``: namespace and name."""

    def lasting(self) -> tuple[str, ...]:
        """As of ``LastingKind``."""
        return ("table",)

    def check(self, order: SinkOrder) -> None:
        extra = [name for name in order.options if name.startswith(PROPERTY)]
        known_options(order, ("catalog", "table", *extra))
        refuse_order(order, "a table has no order")
        self._tables(order)
        require_pyiceberg()

    def open(self, order: SinkOrder, place: SinkPlace) -> Sink:
        tables = self._tables(order)
        return IcebergSink(open_catalog(tables, {}, ""), tables.table, place)

    def read_back(self, order: SinkOrder, place: SinkPlace) -> ReadBack:
        """As of ``ReadableKind``."""
        tables = self._tables(order)
        return IcebergReadBack(open_catalog(tables, {}, ""), tables.table, place)

    def _tables(self, order: SinkOrder) -> KeptTables:
        catalog = resolve(needed(order, "catalog", "https://host/catalog"))
        if catalog == EMBEDDED:
            raise Invalid(
                "a sink needs a catalog of its own", field="options.catalog", found=catalog,
                hint="catalog=sqlite:////path/catalog.db and catalog.warehouse=file:///path, or a REST catalog",
            )  # fmt: skip
        table = needed(order, "table", "logs.orders")
        if _TABLE.match(table) is None:
            raise Invalid(
                "a table is a namespace and a name", field="options.table", found=table[:200],
                expected="letters, digits and '_' with dots between them", hint="table=logs.orders",
            )  # fmt: skip
        given = {
            k.removeprefix(PROPERTY): resolve(v) for k, v in order.options.items() if k.startswith(PROPERTY)
        }
        return KeptTables(catalog, given, table.rpartition(".")[0], table)
