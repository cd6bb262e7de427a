"""What stands on an archive, the gateway and a sink, over a store that lies: they wait or give the right bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.kit import s3lies
from tests.kit.assemble import Counting
from tests.kit.fakes3 import FakeS3
from tests.kit.gatewaydesk import RETRY, Desk, asking, at_default_level, fields, pull, simple, too_small
from tests.kit.readstore import Cold, cold
from tests.kit.sinkrunning import SinkScene
from tiered.clock import ManualClock
from tiered.codec.remoting.frame import Command
from tiered.provider.base import Provider
from tiered.provider.s3 import S3Provider

LIES = [lie for lie in s3lies.LIES if not lie.startswith("403 ") or lie in ("403 ExpiredToken", "403 HTML")]


TRUTHS = ("range ignored", "200 for a range, bare", "200 for a range")
"""What is right all the same."""


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeS3]:
    with FakeS3().running() as running:
        yield running


@pytest.fixture(scope="module")
def archive(fake: FakeS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cold]:
    with ExitStack() as stack:

        def over(stored: Provider) -> Provider:
            provider = S3Provider("bucket", "gateway", fake.store(), ManualClock())
            stack.callback(provider.close)
            return provider

        home = tmp_path_factory.mktemp("gateway")
        made = stack.enter_context(cold(home, open_now=False, over=over, dispatch={"inline_bytes": 0}))
        for number in range(60):
            made.broker.time_ms += 10
            made.broker.send("T", 0, b"%d" % number)
        made.archive()
        yield made


@pytest.mark.parametrize("lie", LIES)
def test_a_consumer_gets_the_right_bytes_or_is_told_to_try_again(
    archive: Cold, fake: FakeS3, lie: str
) -> None:
    """The broker has nothing below 50 any more, and would have its reader skip to there."""
    desk = Desk(at_default_level(archive.open()))
    raws = archive.raws("T")
    times = [message.store_timestamp for message, _ in archive.broker.sent]
    questions = (
        (pull("T", offset=10), too_small(50, 60)),
        (asking(29, topic="T", queueId="0", timestamp=str(times[20])), simple(0, offset="50")),
        (asking(32, topic="T", queueId="0"), simple(0, timestamp=str(times[50]))),
        (asking(31, topic="T", queueId="0"), simple(0, offset="50")),
    )

    def right(made: Command | str, number: int) -> bool:
        if number:
            return (
                fields(made) == ({"offset": "20"}, {"timestamp": str(times[0])}, {"offset": "0"})[number - 1]
            )
        assert isinstance(made, Command)
        following = int(made.ext["nextBeginOffset"])
        return following > 10 and bytes(made.body) == b"".join(raws[10:following])

    try:
        for number, (request, answer) in enumerate(questions):
            with fake.bent(s3lies.LIES[lie]):
                made = desk.ask(request, answer)
            assert right(made, number) if made != RETRY else lie not in TRUTHS, made
            assert right(desk.ask(request, answer), number), "and when it has ended"
    finally:
        desk.close()
        archive.stores.pop().close()


@pytest.fixture(scope="module")
def sinks(fake: FakeS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SinkScene]:
    """A sink of an archive in which all messages lie in objects."""
    patch = pytest.MonkeyPatch()
    provider = S3Provider("bucket", "sinks", fake.store(), ManualClock())
    patch.setattr("tests.kit.sinkrunning.memory", lambda clock: Counting(provider))
    scene = SinkScene(tmp_path_factory.mktemp("sinks"), dispatch={"inline_bytes": 0})
    patch.undo()
    yield scene
    scene.daemon.close()
    provider.close()


@pytest.mark.parametrize("lie", LIES)
def test_a_sink_waits_and_skips_nothing(sinks: SinkScene, fake: FakeS3, lie: str) -> None:
    """The broker has deleted what the sink has still to give: it comes from the archive."""
    sinks.put(60)
    sinks.archive()
    while len(sinks.log.bases()) > 1:
        sinks.log.delete_oldest()
    with fake.bent(s3lies.LIES[lie]):
        for _ in range(6):
            sinks.clock.advance(sinks.runner.step().wait_seconds or 0)
    got = sinks.got()
    assert got == sinks.everything()[: len(got)]
    assert lie in (*TRUTHS, "empty listing") or len(got) < len(sinks.everything())
    sinks.run()
    assert sinks.got() == sinks.everything()
