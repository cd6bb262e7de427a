"""The destination *http*: the contract against a real server, signatures, answers, dead letters."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.kit.certificates import Authority
from tests.kit.sinkscene import PLACE
from tests.kit.webhookserver import Receiver, receiver
from tiered.clock import ManualClock
from tiered.errors import Invalid, Unavailable
from tiered.provider.memory import MemoryProvider
from tiered.sink.base import Sink, SinkPosition
from tiered.sink.contract.checks import SinkContract
from tiered.sink.contract.feeding import Feeding, Interrupted, TestedSink
from tiered.sink.contract.samples import Received, batch_of, message_of, ordinary
from tiered.sink.deadletters import DeadLetters
from tiered.sink.order import SinkOrder
from tiered.sink.webhook.kind import WebhookKind
from tiered.sink.webhook.signing import signed
from tiered.sink.webhook.sink import WebhookSettings, WebhookSink, retry_after_seconds


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


class TestedHttp(TestedSink):
    huge = 2_000

    def __init__(self, server: Receiver, form: str) -> None:
        self.server, self.form = server, form

    def open(self) -> Sink:
        settings = WebhookSettings(self.server.url, self.form, secret="s", most_bytes=64 * 1024, attempts=2)
        return WebhookSink(settings, PLACE, ManualClock())

    def read(self) -> Iterable[Received]:
        """As a receiver that knows a request by its key."""
        keys: set[str] = set()
        for posted in self.server.taken:
            if posted.headers["Idempotency-Key"] in keys:
                continue
            keys.add(posted.headers["Idempotency-Key"])
            one = posted.headers["Content-Type"] == "application/json"
            for m in json.loads(posted.body) if one else map(json.loads, posted.body.splitlines()):
                body = m["body"].encode() if "body" in m else base64.b64decode(m["body_base64"])
                yield Received(m["topic"], m["queue_id"], m["queue_offset"], body, m["properties"])

    def interrupted(self, request: int, *, done: bool) -> AbstractContextManager[Interrupted]:
        return self.server.broken(request, done=done)

    def away(self) -> AbstractContextManager[None]:
        return self.server.away()


class TestWebhookSink(SinkContract):
    @pytest.fixture(params=["ndjson", "json"])
    def tested(self, server: Receiver, request: pytest.FixtureRequest) -> TestedHttp:
        return TestedHttp(server, request.param)


class Posting:
    """A sink into the server, and what was given to it."""

    def __init__(
        self, server: Receiver, *, attempts: int = 3, most_bytes: int = 1 << 20, dead: bool = False
    ) -> None:
        self.clock = ManualClock()
        self.dead = MemoryProvider("dead", self.clock) if dead else None
        settings = WebhookSettings(
            server.url,
            secret="s3cr3t",
            authorization="Bearer t0k3n",
            most_bytes=most_bytes,
            attempts=attempts,
        )
        self.sink = WebhookSink(settings, PLACE, self.clock, self.dead and DeadLetters(self.dead, "orders"))

    def give(self, count: int) -> int:
        """Dead letters of so many messages."""
        messages = [message_of("T", 0, offset, b"body %d." % offset) for offset in range(count)]
        buried = self.sink.write(batch_of(messages)[0]).dead_letters
        self.sink.flush(Feeding(TestedSink()).known)
        return buried


def test_the_signature_is_the_documented_one() -> None:
    """The vector of docs/SINKS.md."""
    assert signed("whsec-test", 1700000000, b'{"topic":"Orders"}\n') == {
        "Tiered-Timestamp": "1700000000",
        "Tiered-Signature": "v1=be638ebcbb258abe66215478a1a798a1b8c0a958095c086fc1eca0ef23942331",
    }


def test_what_a_request_says(server: Receiver) -> None:
    Posting(server).give(3)
    [posted] = server.taken
    seconds = posted.headers["Tiered-Timestamp"]
    mac = hmac.new(b"s3cr3t", seconds.encode() + b"." + posted.body, hashlib.sha256)
    assert posted.headers["Tiered-Signature"] == "v1=" + mac.hexdigest()
    assert (posted.headers["Authorization"], posted.headers["Tiered-Messages"]) == ("Bearer t0k3n", "3")
    assert (posted.headers["Tiered-Sink"], posted.headers["Tiered-Archive"]) == (
        "orders",
        PLACE.archive_id.hex(),
    )


def test_a_repeated_request_has_the_same_key_and_another_request_another(server: Receiver) -> None:
    server.answers = [(503, {}), (200, {})]
    Posting(server).give(3)
    Posting(server).give(3)
    Posting(server).give(4)
    keys = [posted.headers["Idempotency-Key"] for posted in server.asked]
    assert keys[0] == keys[1] == keys[2] != keys[3]


def test_retry_after_is_waited_for_within_a_bound(server: Receiver) -> None:
    server.answers = [(429, {"Retry-After": "17"}), (503, {"Retry-After": "86400"})]
    posting = Posting(server)
    posting.give(1)
    assert posting.clock.monotonic() == 17 + 60
    assert len(server.taken) == 1
    assert retry_after_seconds("Wed, 21 Oct 2015 07:28:00 GMT", 1445412470_000) == 10
    assert [retry_after_seconds(value, 0) for value in ("", "-1", "soon", "1e9")] == [0, 0, 0, 0]


def test_a_receiver_that_stays_away_is_unavailable_and_secrets_are_not_shown(server: Receiver) -> None:
    server.here = False
    with pytest.raises(Unavailable, match="does not take messages now") as caught:
        Posting(server).give(1)
    said = str(caught.value)
    assert [word for word in ("s3cr3t", "t0k3n", "hidden") if word in said] == []
    assert "127.0.0.1" in said


@pytest.mark.parametrize(
    ("status", "said"), [(400, "dead_letters"), (401, "authorization"), (302, "redirects")]
)
def test_an_answer_that_is_final_stops_the_sink(server: Receiver, status: int, said: str) -> None:
    server.answers = [(status, {"Location": "http://127.0.0.1:1/"})]
    with pytest.raises(Invalid, match=said) as caught:
        Posting(server).give(3)
    assert caught.value.fields["first"] == "T/0 at 0"
    assert len(server.asked) == 1, "it is not asked again"
    assert "hidden" not in str(caught.value)


def test_messages_that_are_refused_alone_become_dead_letters(server: Receiver) -> None:
    server.refuse_with = b"body 5."
    posting = Posting(server, dead=True)
    assert posting.sink.write(batch_of(ordinary(1))[0]).dead_letters == 0
    posting.give(8)
    offsets = [json.loads(line)["queue_offset"] for p in server.taken for line in p.body.splitlines()]
    assert sorted(offsets) == [0, 0, 0, 0, 0, 1, 2, 3, 4, 6, 7]
    assert posting.dead is not None
    [stored] = list(posting.dead.list(""))
    assert json.loads(bytes(posting.dead.get(stored.key).data))["body"] == "body 5."
    posting.give(8)
    assert len(list(posting.dead.list(""))) == 1, "given again, it is there once"


def test_rights_that_are_missing_bury_nothing(server: Receiver) -> None:
    server.answers = [(403, {})]
    posting = Posting(server, dead=True)
    with pytest.raises(Invalid):
        posting.give(2)
    assert posting.dead is not None
    assert list(posting.dead.list("")) == []


def test_a_request_that_is_too_large_is_divided(server: Receiver) -> None:
    server.largest = 2_000
    posting = Posting(server)
    posting.give(16)
    offsets = [json.loads(line)["queue_offset"] for p in server.taken for line in p.body.splitlines()]
    assert offsets == list(range(16)), "in their order"
    server.largest = 10
    with pytest.raises(Invalid):
        posting.give(2)


def test_requests_are_bounded(server: Receiver) -> None:
    Posting(server, most_bytes=4_096).give(100)
    assert len(server.taken) > 5
    assert max(len(posted.body) for posted in server.taken) <= 4_096


def test_a_receiver_is_believed_by_its_certificate_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with receiver(authority.issue("server")) as server:
        for ca_bundle, taken in ((None, 0), (str(authority.certificate), 1)):
            settings = WebhookSettings(server.url, attempts=1, ca_bundle=ca_bundle)
            sink = WebhookSink(settings, PLACE, ManualClock())
            sink.write(batch_of([message_of("T", 0, 0, b"x")])[0])
            with contextlib.ExitStack() as refused:
                if not taken:
                    refused.enter_context(pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"))
                sink.flush(SinkPosition())
            sink.close()
            assert len(server.taken) == taken


def test_a_receiver_that_is_away_is_known_when_the_sink_is_opened(server: Receiver) -> None:
    kind = WebhookKind()
    kind.open(SinkOrder("orders", "http", {"url": server.url}), PLACE).close()
    with pytest.raises(Unavailable, match="cannot be reached"):
        kind.open(SinkOrder("orders", "http", {"url": "http://127.0.0.1:1/in"}), PLACE)
    assert server.asked == []


def test_what_is_wrong_with_an_order_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = WebhookKind()
    monkeypatch.setenv("HOOK", "x")

    def order(**options: str) -> SinkOrder:
        return SinkOrder("orders", "http", {"url": "https://h/p", **options})

    good = order(secret="env:HOOK", dead_letters=f"file://{tmp_path}/dead", timeout_ms="500")
    kind.check(good)
    for wrong, said in (
        (order(url=""), r"options\.url"),
        (order(url="ftp://h"), "http:// or https://"),
        (order(url="http://user@h"), "no user"),
        (order(authorization="Bearer x"), "authorization=env:NAME"),
        (order(timeout_ms="1"), "timeout_ms"),
        (order(ca_bundle="/no/such/file"), "not there"),
        (order(dead_letters="nowhere"), r"options\.dead_letters"),
        (order(retries="1"), "no such option"),
    ):
        with pytest.raises(Invalid, match=said):
            kind.check(wrong)
