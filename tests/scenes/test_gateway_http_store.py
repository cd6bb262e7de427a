"""The HTTP pages over a real store: an archive that was written, cut into two flushes, with a hole of time between; fresh,
merged, sealed, of all levels, encrypted. No page tells which."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.kit.aged import READABLE, Stage, aged_cold
from tests.kit.httpscene import serving
from tiered.codec.record.message import decode_message


@pytest.mark.parametrize("stage", READABLE)
def test_what_the_broker_wrote_is_what_the_pages_show(tmp_path: Path, stage: Stage) -> None:
    with aged_cold(tmp_path, stage, open_now=False) as archive:
        for number in range(60):
            archive.broker.time_ms += 10
            archive.broker.send(
                queue_id=number % 2,
                body=b"body %d" % number,
                properties={
                    "KEYS": f"k{number}",
                    "TAGS": "red" if number % 6 == 0 else "blue",
                    "n": str(number),
                },
            )
            if number == 30:
                archive.archive()
        archive.archive()
        archive.open()
        with serving(archive.store) as scene:
            said = scene.json("/v1/topics/Orders/queues/0/messages?count=100")
            stored = [decode_message(raw) for raw in archive.raws("Orders", 0)]
            assert [base64.b64decode(m["body_base64"]) for m in said["messages"]] == [m.body for m in stored]
            assert [m["physical_offset"] for m in said["messages"]] == [m.physical_offset for m in stored]
            assert (said["next_offset"], said["end"]) == (30, True)
            red = scene.json("/v1/topics/Orders/queues/0/messages?tag=red&count=4")
            assert [m["properties"]["n"] for m in red["messages"]] == ["0", "6", "12", "18"]
            some = scene.json("/v1/topics/Orders/queues/0/messages?sql=TAGS%3D%27red%27+AND+n%3E40")
            assert [m["properties"]["n"] for m in some["messages"]] == ["42", "48", "54"]
            time = stored[7].store_timestamp
            first = scene.json(f"/v1/topics/Orders/queues/0/messages?time={time}&count=1")["messages"][0]
            assert first["queue_offset"] == 7
            keyed = scene.json("/v1/query?topic=Orders&key=k13")["messages"]
            assert [(m["queue_id"], m["queue_offset"]) for m in keyed] == [(1, 6)]
            assert scene.json("/v1/topics")["topics"][0]["messages"] == 60
            queues = scene.json("/v1/topics/Orders/queues")["queues"]
            assert [(q["queue_id"], q["max_offset"]) for q in queues] == [(0, 30), (1, 30)]
            assert scene.json("/v1/topics/Orders/queues/0/messages?offset=31", status=404)["error"]["fix"]
            assert scene.json("/v1/topics/Other/queues/0/messages", status=404)["error"]["fix"]


@pytest.mark.parametrize("stage", READABLE)
@pytest.mark.parametrize("expression", ["TAGS = 'red' AND n > 3", "n BETWEEN 1 AND 2"])
def test_a_filter_over_the_archive_finds_what_a_scan_finds(
    tmp_path: Path, expression: str, stage: Stage
) -> None:
    with aged_cold(tmp_path, stage, open_now=False) as archive:
        for number in range(40):
            properties = {"n": str(number)} | ({"TAGS": ["red", "blue"][number % 2]} if number % 3 else {})
            archive.broker.send(body=b"%d" % number, properties=properties)
        archive.archive()
        archive.open()
        with serving(archive.store) as scene:
            path = "/v1/topics/Orders/queues/0/messages?count=100"
            every = scene.json(path)["messages"]
            quoted = expression.replace("=", "%3D").replace(" ", "+").replace(">", "%3E")
            found = scene.json(f"{path}&sql={quoted}")["messages"]
            wanted = {
                "TAGS = 'red' AND n > 3": lambda p: p.get("TAGS") == "red" and int(p["n"]) > 3,
                "n BETWEEN 1 AND 2": lambda p: 1 <= int(p["n"]) <= 2,
            }[expression]
            assert found == [m for m in every if wanted(m["properties"])]
            assert found


@pytest.mark.parametrize("stage", READABLE)
def test_sealed_days_are_really_what_is_read(tmp_path: Path, stage: Stage) -> None:
    """Nine flushes, in objects of the levels that the stage is about: the pages show all of them."""
    with aged_cold(tmp_path, stage, open_now=False) as archive:
        for number in range(9):
            archive.broker.send(body=b"%d" % number, properties={"KEYS": f"k{number}"})
            archive.archive()
        archive.open()
        levels = {item.level for item in archive.daemon.state.objects() if item.references}
        wanted = {Stage.FRESH: {0}, Stage.SEALED: {2}, Stage.MIXED: {0, 1, 2}}
        assert levels == wanted.get(stage, levels)
        with serving(archive.store) as scene:
            said = scene.json("/v1/topics/Orders/queues/0/messages?offset=2&count=5")["messages"]
            assert [base64.b64decode(m["body_base64"]) for m in said] == [b"%d" % n for n in range(2, 7)]
            assert [m["queue_offset"] for m in said] == [2, 3, 4, 5, 6]
            for number in range(9):
                (found,) = scene.json(f"/v1/query?topic=Orders&key=k{number}")["messages"]
                assert found["queue_offset"] == number
