"""The sink: posts requests one after the other, so that a queue's order is that of the requests, and judges answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from tiered.backoff import Backoff
from tiered.clock import Clock
from tiered.errors import Invalid, Unavailable
from tiered.sink.base import Accepted, SafePoint, SinkBatch, SinkPosition
from tiered.sink.deadletters import DeadLetters
from tiered.sink.kinds import SinkPlace
from tiered.sink.webhook.requests import CONTENT_TYPES, Gathering, PostedRequest
from tiered.sink.webhook.signing import signed
from tiered.version import __version__

AGAIN = frozenset({408, 409, 425, 429})
"""Answers of the 400s that say: later. All of the 500s do, too."""
SETUP = frozenset({401, 403, 404, 405, 407, 410, 411, 415})
"""Answers that are about the URL or the rights, not about these messages: nothing is a dead letter because of them."""
TOO_LARGE = 413
MOST_WAIT_SECONDS = 60.0
_SHOWN_ANSWER = 200


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """``secret``, ``authorization``: never shown. ``attempts``: of one request before it counts as away."""

    url: str
    form: str = "ndjson"
    secret: str = field(default="", repr=False)
    authorization: str = field(default="", repr=False)
    most_bytes: int = 1 << 20
    timeout_seconds: float = 10.0
    attempts: int = 5
    ca_bundle: str | None = None

    @property
    def shown(self) -> str:
        """The URL without what may be secret in it."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


class WebhookSink:
    """``dead_letters``: where messages go that the receiver refuses for good; ``None``: the sink stops at them."""

    def __init__(
        self,
        settings: WebhookSettings,
        place: SinkPlace,
        clock: Clock,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        self._settings, self._place, self._clock, self._dead_letters = settings, place, clock, dead_letters
        timeout = urllib3.Timeout(connect=settings.timeout_seconds, read=settings.timeout_seconds)
        self._http = urllib3.PoolManager(
            num_pools=1, maxsize=1, timeout=timeout, retries=False, cert_reqs="CERT_REQUIRED",
            ca_certs=settings.ca_bundle,
        )  # fmt: skip
        self._gathering = Gathering(settings.most_bytes)
        self._backoff = Backoff(0.2, 10.0)

    def position(self) -> None:
        return None

    def write(self, batch: SinkBatch) -> Accepted:
        before = self._buried()
        for request in self._gathering.add(batch):
            self._deliver(request)
        return Accepted(len(batch.rows), self._buried() - before)

    def flush(self, position: SinkPosition) -> SafePoint:
        for request in self._gathering.rest():
            self._deliver(request)
        return SafePoint(position)

    def close(self) -> None:
        self._gathering.rest()
        self._http.clear()
        if self._dead_letters is not None:
            self._dead_letters.close()

    def _deliver(self, request: PostedRequest) -> None:
        """Post until it is taken. What is refused is posted by halves, until the messages are found that it is about."""
        waiting = [request]
        while waiting:
            now = waiting.pop()
            status, said = self._answered(now)
            if 200 <= status < 300:
                continue
            alone = len(now.lines) == 1
            divides = status == TOO_LARGE or self._dead_letters is not None
            if not alone and divides and status not in SETUP and status >= 400:
                waiting += reversed(now.halves())
                continue
            if self._dead_letters is None or status in SETUP or status < 400:
                raise self._refused(now, status, said)
            self._dead_letters.bury(now.key(self._place), now.body("ndjson"), len(now.lines))

    def _answered(self, request: PostedRequest) -> tuple[int, str]:
        """Status and first words of an answer that is final; waits and posts again before any other."""
        failures = 0
        while True:
            found, wait = "", 0.0
            try:
                status, said, wait = self._post(request)
                if status not in AGAIN and status < 500:
                    return status, said
                found = f"status {status}: {said}"
            except HTTPError as error:
                found = f"{type(error).__name__}: {error}".replace(self._settings.url, self._settings.shown)[
                    :300
                ]
            failures += 1
            if failures >= self._settings.attempts:
                raise Unavailable(
                    "the receiver of a sink does not take messages now", url=self._settings.shown, found=found,
                    tries=failures, hint="see its log; the sink goes on where it is once the receiver answers",
                )  # fmt: skip
            self._clock.wait(max(min(wait, MOST_WAIT_SECONDS), self._backoff.seconds(failures)))

    def _post(self, request: PostedRequest) -> tuple[int, str, float]:
        """One try: (status, first words, seconds that the answer asks to wait)."""
        settings, body = self._settings, request.body(self._settings.form)
        headers = {
            "Content-Type": CONTENT_TYPES[settings.form], "User-Agent": f"rocketmq-tiered/{__version__}",
            "Idempotency-Key": request.key(self._place), "Tiered-Sink": self._place.name,
            "Tiered-Archive": self._place.archive_id.hex(), "Tiered-Messages": str(len(request.lines)),
        }  # fmt: skip
        now_ms = self._clock.now_ms()
        if settings.secret:
            headers |= signed(settings.secret, now_ms // 1000, body)
        if settings.authorization:
            headers["Authorization"] = settings.authorization
        answer = self._http.request(
            "POST", settings.url, body=body, headers=headers, redirect=False, preload_content=False
        )
        try:
            said = answer.read(_SHOWN_ANSWER, decode_content=False)
        finally:
            if answer.length_remaining == 0:
                answer.release_conn()
            else:
                answer.close()  # a long answer is not waited for
        wait = retry_after_seconds(answer.headers.get("Retry-After", ""), now_ms)
        return answer.status, ascii(said.decode(errors="replace"))[1:-1], wait

    def _refused(self, request: PostedRequest, status: int, said: str) -> Invalid:
        first = request.lines[0]
        hint = (
            "options.url is the place itself: redirects are not followed" if status < 400
            else "correct url, authorization or secret" if status in SETUP
            else "see the receiver's log; or give the option dead_letters=URL, where such messages then go"
        )  # fmt: skip
        return Invalid(
            "the receiver of a sink refuses messages", url=self._settings.shown, status=status, found=said,
            messages=len(request.lines), first=f"{first.topic}/{first.queue_id} at {first.queue_offset}", hint=hint,
        )  # fmt: skip

    def _buried(self) -> int:
        return 0 if self._dead_letters is None else self._dead_letters.buried


def retry_after_seconds(value: str, now_ms: int) -> float:
    """What a header ``Retry-After`` asks for: seconds, or a date; 0 if it is neither."""
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_ms / 1000)
    except (ValueError, TypeError):
        return 0.0
