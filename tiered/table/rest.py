"""A REST catalog whose requests come to an end: pyiceberg's own wait for ever for a server that has gone silent."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

from tiered.table.catalog import seconds_of


class _Bounded(HTTPAdapter):
    """Requests without a time limit get one."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        """See ``HTTPAdapter``."""
        kwargs["timeout"] = kwargs.get("timeout") or self._seconds
        return super().send(request, *args, **kwargs)


class BoundedRestCatalog(RestCatalog):
    """``RestCatalog`` with time limits; property ``tiered.timeout-seconds`` changes them."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        bounded = _Bounded(seconds_of(self.properties))
        for scheme in ("http://", "https://"):
            if type(session.get_adapter(scheme)) is HTTPAdapter:  # not one that signs
                session.mount(scheme, bounded)
        return session
