"""Price tables: what a store charges, from a TOML file; the one that comes with the program is ``prices.toml``."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from tiered.errors import Invalid, NotFound, did_you_mean

_REQUIRED = ("storage_gb_month", "put_per_1000", "get_per_1000")
_OPTIONAL = ("minimum_object_bytes", "bytes_per_gb")


@dataclass(frozen=True, slots=True)
class Price:
    """What a store charges, in one currency: a GB kept for a month, 1000 requests; and the least size that it charges for."""

    name: str
    storage_gb_month: float
    put_per_1000: float
    get_per_1000: float
    minimum_object_bytes: float = 0.0
    bytes_per_gb: float = float(1 << 30)


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Stores by name, and where they were read."""

    file: str
    currency: str
    stores: dict[str, Price]


def read_prices(path: Path | None) -> PriceTable:
    """The price table in a file, or that of the program. ``Invalid`` names file, key, value and fix."""
    if path is None:
        name = "prices.toml"
        data = resources.files("tiered.text").joinpath(name).read_bytes()
    else:
        name = str(path)
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise NotFound(
                "the file of --prices does not exist",
                file=path,
                hint="name an existing file, or leave --prices out",
            ) from error
        except OSError as error:
            raise Invalid(
                "the file of --prices cannot be read", file=path, why=error.strerror, hint="name another"
            ) from error
    try:
        table = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid("the price table is not TOML", file=name, why=error, hint="correct it there") from error
    for key in table:
        if key not in ("currency", "store"):
            hint = did_you_mean(key, ("currency", "store"), "there are: ")
            raise _wrong(name, key, table[key], "currency or [store.NAME]", hint)
    currency, stores = table.get("currency", "USD"), table.get("store", {})
    if not isinstance(currency, str):
        raise _wrong(name, "currency", currency, "text", 'currency = "USD"')
    if not isinstance(stores, dict) or not stores:
        raise _wrong(name, "store", stores, "at least one [store.NAME]", "[store.mine] and its prices")
    return PriceTable(name, currency, {str(s): _price(name, str(s), values) for s, values in stores.items()})


def _price(file: str, store: str, values: object) -> Price:
    if not isinstance(values, Mapping):
        raise _wrong(file, f"store.{store}", values, "a table of prices", f"[store.{store}]")
    given: dict[str, Any] = {}
    known = (*_REQUIRED, *_OPTIONAL)
    for key, value in values.items():
        where = f"store.{store}.{key}"
        if key not in known:
            raise _wrong(file, where, value, "a known key", did_you_mean(key, known, "there are: "))
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise _wrong(file, where, value, "a number from 0", f"{key} = 0.01")
        if key == "bytes_per_gb" and value not in (10**9, 1 << 30):
            raise _wrong(file, where, value, "1000000000 or 1073741824", f"{key} = 1073741824")
        given[key] = value
    for key in _REQUIRED:
        if key not in given:
            raise _wrong(file, f"store.{store}.{key}", "nothing", "a number from 0", f"{key} = 0.01")
    return Price(store, **given)


def _wrong(file: str, key: str, value: object, expected: str, hint: str) -> Invalid:
    return Invalid("the price table is wrong", file=file, key=key, found=value, expected=expected, hint=hint)
