"""A Glue catalog whose requests come to an end: by pyiceberg's own settings, one that is away is waited for for minutes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import botocore.session
from botocore.config import Config
from pyiceberg.catalog import BOTOCORE_SESSION
from pyiceberg.catalog.glue import GLUE_MAX_RETRIES

RETRIES = 2
_SHARE = 0.8
"""Of a request's time, what its tries take; the rest are the pauses between them."""


def bounded(properties: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Properties by which a request, with its tries, takes ``seconds`` at most; property ``glue.max-retries`` says how many."""
    retries = int(properties.get(GLUE_MAX_RETRIES, RETRIES))
    each = _SHARE * seconds / (1 + retries)
    session = botocore.session.get_session()
    session.set_default_client_config(Config(connect_timeout=each, read_timeout=each))
    return {GLUE_MAX_RETRIES: retries, BOTOCORE_SESSION: session}
