"""Structured logs on stderr: one line per event, for people or as JSON, with known secrets struck out.

Fields are given the standard way, ``logger.info("commit proven", extra={"seq": 7})``, and appear as ``seq=7`` or as JSON
members. Secrets are struck from the finished line, whatever brought them there: message, field or traceback.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TextIO
from urllib.parse import quote

from tiered.settings import STARS, Log
from tiered.stderr import unblock

ROOT = "tiered"
_QUIET = ("boto3", "botocore", "urllib3", "s3transfer", "fsspec", "s3fs", "aiobotocore")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MIN_SECRET = 4


class Redactor:
    """Replaces each known secret, also in its JSON-escaped and URL-quoted form, by stars."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms: set[str] = set()
        for secret in secrets:
            if len(secret) >= _MIN_SECRET:
                escaped = (
                    json.dumps(secret)[1:-1],
                    json.dumps(secret, ensure_ascii=False)[1:-1],
                    repr(secret)[1:-1],
                )
                forms |= {secret, *escaped, quote(secret), quote(secret, safe="")}
        self._forms = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """``text`` without secrets."""
        for form in self._forms:
            text = text.replace(form, STARS)
        return text


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """What the caller passed as ``extra``."""
    return {k: v for k, v in vars(record).items() if k not in _STANDARD}


class LineFormatter(logging.Formatter):
    """One event as one line (``json_lines``) or as text for a console; newlines in values cannot forge a line."""

    def __init__(self, redact: Redactor, *, json_lines: bool) -> None:
        super().__init__()
        self._redact = redact
        self._json = json_lines

    def format(self, record: logging.LogRecord) -> str:
        """The finished line, secrets struck out."""
        when = (
            datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        name, message = record.name.removeprefix(ROOT + "."), self._redact(record.getMessage())
        if self._json:
            event: dict[str, object] = {
                "time": when,
                "level": record.levelname.lower(),
                "logger": name,
                "message": message,
            }
            event |= {k if k not in event else f"field_{k}": v for k, v in fields_of(record).items()}
            if trace:
                event["traceback"] = trace
            return self._redact(json.dumps(event, default=self._text, ensure_ascii=False))
        pairs = "".join(f"  {k}={_plain(self._text(v))}" for k, v in fields_of(record).items())
        line = f"{when} {record.levelname:<7} {name}: {_one_line(message)}{pairs}"
        return self._redact(line + ("\n" + trace if trace else ""))

    def _text(self, value: object) -> str:
        """``str(value)`` without secrets, before any escaping hides them."""
        return self._redact(str(value))


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _plain(text: str) -> str:
    return text if text and text.isprintable() and " " not in text else json.dumps(text, ensure_ascii=False)


def configure(settings: Log, secrets: Iterable[str] = (), stream: TextIO | None = None) -> logging.Handler:
    """Send every log of the process to ``stream`` as ``settings`` says; returns the handler. Without one it is stderr, which
    keeps nobody waiting from now on (``tiered/stderr.py``).

    Replaces an earlier configuration. SDK loggers show warnings only: their debug lines carry request headers.
    """
    if stream is None:
        unblock()
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(LineFormatter(Redactor(secrets), json_lines=settings.format == "json"))
    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old.formatter, LineFormatter):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger(ROOT).setLevel(settings.level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    # Its only warnings: more requests at once than pooled connections, as the probe's race makes on purpose.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    return handler
