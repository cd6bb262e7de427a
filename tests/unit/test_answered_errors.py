"""Which error is answered with what: no door takes the archive's trouble for its client's mistake.

``PLACES`` names every place of the products that tells one class of error from another. A new one, or a new class of the tree,
fails here: try it with every class, then write it down.
"""

from __future__ import annotations

import ast
import asyncio
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tiered
from tests.kit.fakearchive import FakeArchive, time_of
from tests.kit.gatewaydesk import RETRY, Desk, asking, pull, simple, too_small
from tiered import errors
from tiered.clock import ManualClock
from tiered.codec.remoting.codes import ResponseCode
from tiered.codec.remoting.frame import Command
from tiered.codec.remoting.nodepull import ARCHIVE
from tiered.errors import Refused, TieredError, Unavailable
from tiered.gateway.answers.keyvalues import _failed
from tiered.gateway.knowledge.samebroker import SameBroker
from tiered.gateway.ports import ConnectionInfo
from tiered.http.refusals import http_status, json_refusal
from tiered.metrics import Metrics
from tiered.node.answers import NodeAnswers
from tiered.settings import Serve
from tiered.sink.progress import SinkPhase
from tiered.sink.running import SinkRunner

BUCKET = "s3://the-bucket/prefix"
KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, TieredError)
}
ARCHIVE_SIDE = sorted(set(KINDS) - {"BadRequest"})
TIERED = Path(tiered.__file__).parent
SPARK = TIERED.parent / "spark"
ROOMS = (
    *(TIERED / room for room in ("gateway", "node", "http", "view", "client", "replay", "sink")),
    SPARK / "tiered_spark",
    SPARK / "jobs/tiered_jobs",
)


def made(kind: str) -> TieredError:
    return KINDS[kind]("something is wrong", url=BUCKET, key="a/key", hint=f"look at {BUCKET}")


def test_every_class_of_the_tree_was_tried() -> None:
    assert sorted(KINDS) == [
        "BadRequest", "Conflict", "Corrupt", "Denied", "Fenced", "Invalid", "NotFound", "Refused", "TieredError",
        "Unavailable",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ARCHIVE_SIDE)
def test_a_consumer_is_told_to_try_again_whatever_the_archive_says(kind: str) -> None:
    desk = Desk()
    desk.archive.fill("T", 0, 10, 150)
    desk.archive.error = made(kind)
    try:
        assert desk.ask(pull(offset=40), too_small(100, 200)) == RETRY
        for request, answer in (
            (asking(29, topic="T", queueId="0", timestamp=str(time_of(40))), simple(0, offset="100")),
            (asking(32, topic="T", queueId="0"), simple(0, timestamp=str(time_of(100)))),
        ):
            assert desk.ask(request, answer) == RETRY
    finally:
        desk.close()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_read_node_says_it_is_busy_unless_the_question_is_wrong(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> Any:
        raise made(kind)

    monkeypatch.setattr("tiered.node.answers.NodePull.parse", fails)
    with ThreadPoolExecutor(1) as pool:
        archive: Any = FakeArchive()
        node = NodeAnswers(archive, Serve(), Metrics(), ManualClock(), pool)
        answer = asyncio.run(node.answer(Command(11, 1, ext={ARCHIVE: "00" * 16})))
    if kind == "BadRequest":
        assert answer.code == ResponseCode.SYSTEM_ERROR
    else:
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert BUCKET not in (answer.remark or "")


@pytest.mark.parametrize("kind", ["Unavailable", "Denied", "Invalid", "TieredError", "BadRequest"])
def test_the_key_value_door_and_the_pages_tell_the_client_s_mistakes_from_ours(kind: str) -> None:
    error = made(kind)
    answer, page = _failed(error, writes=False), json_refusal(error)
    if kind == "BadRequest":
        assert (answer.code, page.status_code) == (ResponseCode.SYSTEM_ERROR, 400)
    else:
        assert (answer.code, http_status(error)) == (
            ResponseCode.SYSTEM_BUSY,
            500 if kind == "TieredError" else 503,
        )
        assert BUCKET not in (answer.remark or "")
        assert kind == "TieredError" or BUCKET.encode() not in bytes(page.body)


def test_what_the_archive_refuses_is_not_taken_for_a_broker_that_does_not_let_itself_be_asked() -> None:
    archive: Any = FakeArchive()
    archive.newest = lambda: (_ for _ in ()).throw(Refused("a newer format"))
    floor: Any = None
    with ThreadPoolExecutor(1) as pool:
        same = SameBroker(archive, floor, pool, Metrics(), ManualClock())
        with pytest.raises(Unavailable, match="a newer format"):
            asyncio.run(same.require(ConnectionInfo(1, "10.0.0.9:1", "10.0.0.1:10911", "broker-a")))
    assert not same.listens


@pytest.mark.parametrize("kind", ARCHIVE_SIDE)
def test_a_sink_waits_for_its_archive_whatever_it_says(kind: str) -> None:
    def fails() -> Any:
        raise made(kind)

    if kind == "Fenced":  # which ends the process that meets it, and the sink before
        return
    stored: Any = SimpleNamespace(name="s", sink_id=b"1" * 16, paused=False, revision=1, anew=0, order=None)
    source: Any = SimpleNamespace(fold=fails)
    pace: Any = SimpleNamespace(bucket=lambda clock: None, poll_seconds=1.0)
    nothing: Any = SimpleNamespace(rewound=-1)
    runner = SinkRunner(stored, nothing, source, nothing, ManualClock(), pace)
    runner.step()
    assert runner.progress.phase in (SinkPhase.WAITING, SinkPhase.AWAY)


def found(room: Path) -> Iterator[tuple[str, str]]:
    """Function and class of every ``except``, ``case``, ``isinstance`` and ``suppress`` of a room that names a class of the
    tree."""
    for path in sorted(room.rglob("*.py")):
        tree = ast.parse(path.read_text())
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and node.type is not None:
                looked: list[ast.expr] = [node.type]
            elif isinstance(node, ast.MatchClass):
                looked = [node.cls]
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
                "isinstance",
                "issubclass",
                "suppress",
            ):
                looked = list(node.args)
            else:
                continue
            inside = [f for f in functions if f.lineno <= looked[0].lineno <= (f.end_lineno or 0)]
            name = max(inside, key=lambda f: f.lineno).name if inside else "<module>"
            for part in looked:
                for leaf in ast.walk(part):
                    if isinstance(leaf, ast.Name) and leaf.id in KINDS:
                        yield f"{path.relative_to(room.parent)}:{name}", leaf.id


def test_every_place_that_tells_errors_apart_is_known() -> None:
    seen: defaultdict[str, set[str]] = defaultdict(set)
    for room in ROOMS:
        places = list(found(room))
        assert places, f"{room} has none: has it moved?"
        for place, kind in places:
            seen[place].add(kind)
    assert {place: " ".join(sorted(kinds)) for place, kinds in sorted(seen.items())} == PLACES


PLACES: dict[str, str] = {
    "client/sync.py:_read": "Unavailable",
    "client/sync.py:update": "Conflict",
    "gateway/answers/answers.py:_untold": "BadRequest",
    "gateway/answers/answers.py:answer": "BadRequest TieredError",
    "gateway/answers/answers.py:judge": "BadRequest",
    "gateway/answers/answers.py:learn": "TieredError",
    "gateway/answers/answers.py:notice": "BadRequest",
    "gateway/answers/answers.py:observe": "TieredError",
    "gateway/answers/keyvalues.py:_called": "TieredError",
    "gateway/answers/keyvalues.py:_failed": "BadRequest Conflict Corrupt NotFound Refused",
    "gateway/answers/keyvalues.py:_made": "BadRequest",
    "gateway/answers/litenumbers.py:of_table": "Unavailable",
    "gateway/answers/offsets.py:_known_minimum": "TieredError",
    "gateway/answers/resets.py:_table": "Corrupt",
    "gateway/answers/resets.py:asked": "BadRequest",
    "gateway/answers/stats.py:_filled": "Corrupt TieredError",
    "gateway/answers/stats.py:fill": "Corrupt",
    "gateway/app.py:open": "TieredError",
    "gateway/knowledge/asking.py:_quietly": "TieredError",
    "gateway/knowledge/asking.py:call": "Unavailable",
    "gateway/knowledge/caughtup.py:has_the_rest": "TieredError",
    "gateway/knowledge/caughtup.py:intact": "TieredError",
    "gateway/knowledge/caughtup.py:log_begin": "TieredError",
    "gateway/knowledge/caughtup.py:passed": "TieredError",
    "gateway/knowledge/opening.py:observe": "Unavailable",
    "gateway/knowledge/opening.py:step": "TieredError",
    "gateway/knowledge/opening.py:tenants": "Unavailable",
    "gateway/knowledge/questions.py:_of_runtime": "Corrupt",
    "gateway/knowledge/samebroker.py:_check": "TieredError",
    "gateway/knowledge/samebroker.py:watch": "TieredError",
    "gateway/nodes/connection.py:data_received": "TieredError",
    "gateway/nodes/fleet.py:_beat": "Refused TieredError",
    "gateway/nodes/reads.py:_from_nodes": "TieredError",
    "gateway/pull/cold.py:answer": "BadRequest TieredError",
    "gateway/pull/compare.py:in_reach": "TieredError",
    "gateway/pull/filters.py:_compile": "BadRequest",
    "gateway/pull/gaps.py:_inner": "TieredError",
    "gateway/pull/litequeues.py:answer": "BadRequest",
    "gateway/pull/recheck.py:stand_in": "BadRequest",
    "gateway/pull/verdict.py:_may_have": "TieredError",
    "gateway/pull/verdict.py:_why_doubt": "TieredError",
    "gateway/routes/nameserver.py:run": "TieredError",
    "gateway/routes/rewriting.py:_named": "Corrupt",
    "gateway/transport/brokerdown.py:_look": "Unavailable",
    "gateway/transport/brokerdown.py:_until_back": "Unavailable",
    "gateway/transport/fronts.py:_serve": "Unavailable",
    "gateway/transport/session.py:_answer": "TieredError",
    "gateway/transport/session.py:_serve": "TieredError",
    "gateway/transport/side.py:data_received": "TieredError",
    "gateway/transport/upstream.py:data_received": "TieredError",
    "http/app.py:__call__": "TieredError",
    "http/app.py:_failure": "TieredError",
    "http/archive/pages.py:_compacted": "BadRequest TieredError",
    "http/archive/pages.py:_filter": "BadRequest",
    "http/archive/pages.py:_fresh": "Unavailable",
    "http/archive/pages.py:_messages": "Corrupt TieredError",
    "http/archive/pages.py:begin": "Refused",
    "http/health.py:_made": "TieredError",
    "http/kv/pages.py:_written": "TieredError",
    "http/kv/problems.py:problem": "Corrupt Unavailable",
    "http/kv/server.py:_run": "TieredError",
    "http/refusals.py:http_status": "BadRequest Conflict Invalid NotFound Refused Unavailable",
    "node/answers.py:answer": "BadRequest TieredError",
    "node/answers.py:wanted": "TieredError",
    "node/server.py:data_received": "TieredError",
    "replay/drain.py:_measured": "Unavailable",
    "replay/groups.py:_compiled": "BadRequest",
    "replay/groups.py:ask": "Unavailable",
    "replay/inbox.py:waiting": "Invalid",
    "replay/running.py:run": "TieredError Unavailable",
    "replay/troubles.py:guarded": "TieredError Unavailable",
    "sink/backfill.py:begin_job": "Conflict",
    "sink/backfill.py:check_job": "NotFound",
    "sink/backfill.py:put_done": "Conflict",
    "sink/backfill.py:put_plan": "Conflict",
    "sink/backfill.py:sweep": "Corrupt",
    "sink/book.py:_require_gone": "NotFound",
    "sink/contract/checks.py:_harmless": "Conflict Fenced Unavailable",
    "sink/contract/checks.py:_refused": "Unavailable",
    "sink/contract/checks.py:_try_once": "Conflict Unavailable",
    "sink/contract/checks.py:test_a_destination_that_is_away": "Unavailable",
    "sink/contract/checks.py:test_names_that_no_broker_takes": "Invalid",
    "sink/contract/feeding.py:finish": "Fenced Unavailable",
    "sink/deadletters.py:bury": "Conflict",
    "sink/deadletters.py:dead_letters_of": "Invalid",
    "sink/declared.py:_declared": "TieredError",
    "sink/ending.py:end_backfill": "Conflict",
    "sink/file/kind.py:_provider": "Invalid",
    "sink/file/kind.py:open": "NotFound",
    "sink/file/reading.py:_files": "NotFound",
    "sink/file/sink.py:_claim": "Fenced",
    "sink/file/sink.py:_put": "Conflict",
    "sink/file/sink.py:_put_file": "Conflict",
    "sink/file/sink.py:_whole": "NotFound",
    "sink/iceberg/sink.py:table_errors": "Unavailable",
    "sink/kafka/sink.py:_opening": "Fenced",
    "sink/kafka/sink.py:_telling": "Fenced",
    "sink/kafka/sink.py:_whose": "TieredError",
    "sink/kafka/topics.py:delete": "TieredError",
    "sink/kafka/topics.py:reachable": "Unavailable",
    "sink/rocketmq/cluster.py:_create": "Unavailable",
    "sink/rocketmq/cluster.py:brokers_in": "Corrupt",
    "sink/rocketmq/cluster.py:route": "NotFound",
    "sink/rocketmq/sink.py:_round": "Invalid",
    "sink/running.py:_archive_side": "BadRequest Invalid",
    "sink/running.py:_step": "Unavailable",
    "sink/running.py:finish": "TieredError",
    "sink/running.py:step": "Fenced Invalid TieredError Unavailable",
    "sink/shape.py:shape_of": "Invalid",
    "tiered_jobs/audit/check.py:_blocks": "Corrupt NotFound",
    "tiered_jobs/audit/check.py:_piece": "Corrupt NotFound",
    "tiered_jobs/audit/check.py:_wrong": "Corrupt",
    "tiered_jobs/audit/check.py:portion": "Corrupt NotFound",
    "tiered_jobs/audit/check.py:tables": "Corrupt NotFound",
    "tiered_jobs/backfill/parts.py:_view": "NotFound",
    "tiered_jobs/main.py:_plain": "TieredError",
    "tiered_jobs/pipeline/claim.py:__exit__": "Refused",
    "tiered_jobs/pipeline/decode.py:_refused": "Invalid",
    "tiered_jobs/trace/search.py:_take_located": "Invalid",
    "tiered_spark/datasource.py:streamReader": "TieredError",
    "tiered_spark/errors.py:by_option": "TieredError",
    "tiered_spark/errors.py:plainly": "NotFound TieredError",
    "tiered_spark/keptfolds.py:at_end": "TieredError",
    "tiered_spark/loss.py:check": "NotFound",
    "tiered_spark/plan_keys.py:_holds": "Corrupt",
    "tiered_spark/provenfiles.py:ask": "NotFound",
    "tiered_spark/replay/options.py:_addresses": "Invalid",
    "tiered_spark/replay/progress.py:claim": "Conflict",
    "tiered_spark/replay/sender.py:_again": "NotFound Unavailable",
    "tiered_spark/replay/sender.py:_once": "TieredError",
    "tiered_spark/replay/source.py:_note_what_was_done": "TieredError",
    "tiered_spark/scan.py:_decoded": "Corrupt",
    "tiered_spark/scan.py:_headers": "Corrupt",
    "tiered_spark/scan.py:_results": "Corrupt",
    "tiered_spark/snapshot.py:_open": "NotFound",
    "tiered_spark/there.py:_absent": "NotFound",
    "view/keeping.py:begin_with_snapshot": "TieredError Unavailable",
    "view/keeping.py:step": "Refused TieredError Unavailable",
    "view/putting.py:_asked": "Unavailable",
    "view/putting.py:_to_master": "TieredError",
    "view/putting.py:asking": "Unavailable",
    "view/putting.py:log_end": "Unavailable",
    "view/redo.py:namespace_of": "BadRequest",
    "view/snapshot.py:_piece": "NotFound",
    "view/snapshot.py:list_snapshots": "Corrupt Refused",
    "view/view.py:_flush_if_due": "Unavailable",
    "view/view.py:_sweep": "Unavailable",
    "view/view.py:step": "Unavailable",
}
