"""Opening the catalog that tables are kept in, and what its errors mean. Nothing but this room and
``sink.iceberg`` imports ``pyiceberg``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiered.errors import Refused, TieredError, Unavailable, not_installed
from tiered.table.orders import EMBEDDED, KeptTables

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

CATALOG_NAME = "tiered"
"""What pyiceberg knows a catalog by that is no name of its own configuration: PYICEBERG_CATALOG__TIERED__…"""
TIMEOUT_SECONDS = 25.0
"""Time without a byte from a REST catalog, or for a request to Glue with all its tries: a round that meets one that is away
ends soon afterwards. Property ``tiered.timeout-seconds`` of a catalog changes it."""


def require_pyiceberg() -> None:
    """Raises ``Invalid`` where the packages that keep tables are not installed."""
    if not find_spec("pyiceberg") or not find_spec("pyarrow"):
        raise not_installed("an Iceberg table", "pyiceberg", "iceberg")


def open_catalog(tables: KeptTables, access: Mapping[str, str], state_directory: str) -> Catalog:
    """The catalog of these tables. ``access``: properties that reach the archive's files, which ``tables.properties`` may
    replace. ``Invalid`` without pyiceberg, ``Refused`` where the embedded catalog has no directory; ``Unavailable`` if it
    is away."""
    require_pyiceberg()
    with catalog_errors(tables.catalog):
        return _opened(tables, {**access, **tables.properties}, state_directory)


def _opened(tables: KeptTables, properties: Mapping[str, str], state_directory: str) -> Catalog:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    catalog, name = tables.catalog, CATALOG_NAME
    if catalog == EMBEDDED:
        given = {**_embedded(state_directory), **properties}
    elif "://" in catalog:
        given = {"uri": catalog, **properties}
    elif catalog == "glue":
        given = {"type": "glue", **properties}
    else:
        name, given = catalog, dict(properties)
    whole: dict[str, Any] = {**(Config().get_catalog_config(name) or {}), **given}
    if whole.get("type", "rest") == "rest" and str(whole.get("uri", "")).startswith("http"):
        from tiered.table.rest import BoundedRestCatalog

        return BoundedRestCatalog(name, **whole)
    if whole.get("type") == "glue":
        from tiered.table.glue import bounded

        given |= bounded(whole, seconds_of(whole))
    return load_catalog(name, **given)


def seconds_of(properties: Mapping[str, Any]) -> float:
    """How long a request to a catalog of these properties may take."""
    return float(properties.get("tiered.timeout-seconds", TIMEOUT_SECONDS))


def is_unreachable(error: TieredError) -> bool:
    """Whether this is of a catalog that did not answer at all: whatever else is asked of it would wait as long."""
    if error.__cause__ is None:  # it may be that there is no pyiceberg, and nothing that it needs
        return False
    from botocore.exceptions import ConnectionError as NoConnection
    from botocore.exceptions import HTTPClientError
    from requests.exceptions import ConnectionError as Unconnected
    from requests.exceptions import Timeout

    return isinstance(error.__cause__, Unconnected | Timeout | NoConnection | HTTPClientError)


def _embedded(state_directory: str) -> dict[str, str]:
    """A catalog in a file, and metadata beside it."""
    if not state_directory:
        raise Refused(
            "the embedded catalog lies in the state directory, and none is known", key="state.directory",
            hint="set state.directory, or name a catalog: --catalog",
        )  # fmt: skip
    directory = Path(state_directory).resolve() / "iceberg"
    directory.mkdir(parents=True, exist_ok=True)
    return {"type": "sql", "uri": f"sqlite:///{directory / 'catalog.db'}", "warehouse": f"file://{directory}"}


@contextmanager
def catalog_errors(catalog: str) -> Iterator[None]:
    """Errors of pyiceberg and of what it asks, as ones of this program: ``Unavailable``, since nothing was half done."""
    try:
        yield
    except TieredError:
        raise
    except Exception as error:
        text = str(error).strip().splitlines()
        said = f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__
        raise Unavailable(
            "the catalog of a table cannot do its work now", catalog=catalog, found=said,
            hint="the archive is as it was; the next round tries again, and tiered table list shows how far a table is",
        ) from error  # fmt: skip
