"""Sinks declared in a file: what is read, what it changes, what is refused, and the daemon that follows it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS, memory
from tiered.clock import ManualClock
from tiered.daemon.sinkfile import AGAIN_SECONDS, SinkFile
from tiered.errors import Conflict, Invalid, NotFound, TieredError
from tiered.sink.book import SinkBook
from tiered.sink.declared import declared_changes, put_changes, read_declared
from tiered.sink.order import SinkOrder

ARCHIVE = b"\1" * 16


class Declared:
    """A file and the orders of a bucket."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.book = SinkBook(memory(self.clock), KEYS, ARCHIVE)
        self.file = directory / "sinks.toml"
        self.out = f"file://{directory}/out"

    def write(self, text: str) -> None:
        self.file.write_text(text.replace("OUT", self.out))

    def put(self) -> dict[str, tuple[str, ...]]:
        """What was changed, by sink."""
        changes = declared_changes(self.book, read_declared(self.file))
        put_changes(self.book, changes, 5, os.urandom)
        return {each.name: each.differs for each in changes}


@pytest.fixture
def made(tmp_path: Path) -> Declared:
    return Declared(tmp_path)


WHOLE = """
[copy]
kind = "file"
topics = ["Order*", "Bills"]
exclude = ["*-test"]
required = true
[copy.options]
location = "OUT/copy"
file_bytes = 1048576

[hook]
kind = "http"
paused = true
from_start = false
options = {url = "http://127.0.0.1:9/in", format = "json"}
"""


def test_what_is_declared_is_put_once(made: Declared) -> None:
    made.write(WHOLE)
    assert made.put() == {"copy": ("added",), "hook": ("added",)}
    copy, hook = made.book.sinks()
    options = {"location": f"{made.out}/copy", "file_bytes": "1048576"}
    assert copy.order == SinkOrder("copy", "file", options, ("Order*", "Bills"), ("*-test",), True, True)
    assert (copy.paused, copy.revision) == (False, 1)
    assert (hook.paused, hook.order.from_start, hook.order.topics) == (True, False, ("*",))
    assert made.put() == {"copy": (), "hook": ()}
    assert [each.revision for each in made.book.sinks()] == [1, 2], "nothing is put for what is as declared"


def test_what_differs_is_changed_and_the_rest_is_left_alone(made: Declared) -> None:
    made.write(WHOLE)
    made.put()
    made.book.change("copy", 6, os.urandom, paused=True)
    made.book.add(SinkOrder("other", "http", {"url": "http://127.0.0.1:9/"}), 6, os.urandom)
    made.write(
        WHOLE.replace('topics = ["Order*", "Bills"]', "")
        .replace("required = true", "from_start = false")
        .replace("file_bytes = 1048576", "")
        .replace("paused = true", "paused = false")
    )
    assert made.put() == {"copy": ("topics", "required", "options"), "hook": ("paused",)}
    copy, hook, other = made.book.sinks()
    assert copy.order == SinkOrder(
        "copy", "file", {"location": f"{made.out}/copy"}, ("*",), ("*-test",), False, True
    )
    assert (copy.paused, hook.paused, other.revision) == (True, False, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind = ", "not TOML"),
        ("kind = " + "[" * 5_000, "not TOML"),
        ("kind = " + "9" * 5_000, "not TOML"),
        ("copy = 3", "a table of the sink's fields"),
        ("[copy]\ntopics = ['a']", "copy.kind"),
        ("[copy]\nkind = 'file'\ntopic = 'a'", "copy.topic"),
        ("[copy]\nkind = 'file'\ntopics = 'a'", "copy.topics"),
        ("[copy]\nkind = 'file'\ntopics = [1]", "a list of patterns"),
        ("[copy]\nkind = 'file'\nrequired = 1", "copy.required"),
        ("[copy]\nkind = 'file'\noptions = {file_bytes = 1.5}", "copy.options.file_bytes"),
        ("[Copy]\nkind = 'file'", "lower case letters"),
        ("[copy]\nkind = 'kafak'", "no such kind"),
        ("[copy]\nkind = 'file'\noptions = {location = 'OUT', secret_access_key = 'x'}", "do not belong into the bucket"),
        ("[copy]\nkind = 'file'", "location"),
        ("[a]\nkind = 'file'\noptions = {location = 'OUT'}\n[b]\nkind = 'file'\noptions = {locatoin = 'OUT'}", "locatoin"),
    ],
)  # fmt: skip
def test_what_is_refused_changes_nothing(made: Declared, text: str, said: str) -> None:
    made.write(text)
    with pytest.raises(Invalid) as refused:
        made.put()
    assert said in str(refused.value)
    assert made.book.sinks() == []


def test_what_lasts_is_not_changed_by_a_file(made: Declared) -> None:
    made.write(WHOLE)
    made.put()
    for before, after, error, said in (
        ("OUT/copy", "OUT/elsewhere", Invalid, "lasts as long as its sink"),
        ('kind = "file"', 'kind = "http"', Conflict, "kind lasts"),
    ):
        made.write(WHOLE.replace(before, after).replace("paused = true", "paused = false"))
        with pytest.raises(error) as refused:
            made.put()
        assert said in str(refused.value)
        assert [each.revision for each in made.book.sinks()] == [1, 2]


def test_a_file_that_is_not_there(made: Declared) -> None:
    with pytest.raises(NotFound):
        read_declared(made.file)


def test_the_daemon_follows_its_file(made: Declared, caplog: pytest.LogCaptureFixture) -> None:
    """It is put at the start and when it changes; in between verbs have the last word. What cannot be put is said once, and
    tried again."""
    made.write(WHOLE)
    file = SinkFile(str(made.file), made.book, made.clock)
    file.look()
    assert [each.name for each in made.book.sinks()] == ["copy", "hook"]
    made.book.change("copy", 6, os.urandom, order=SinkOrder("copy", "file", {"location": f"{made.out}/copy"}))
    file.look()
    assert made.book.sink("copy").order.topics == ("*",), "the file has not changed"
    made.write(WHOLE.replace("required = true", "required = 1"))
    for _ in range(3):
        file.look()
    assert "copy.required" in str(file.trouble)
    assert len([r for r in caplog.records if r.levelname == "ERROR"]) == 1
    made.write(WHOLE + "\n")
    file.look()
    assert file.trouble is None
    assert made.book.sink("copy").order.topics == ("Order*", "Bills")
    made.file.unlink()
    file.look()
    assert "does not exist" in str(file.trouble)
    made.write(WHOLE)
    file.look()
    assert file.trouble is None


def test_what_failed_is_tried_again_after_a_while(made: Declared, monkeypatch: pytest.MonkeyPatch) -> None:
    made.write(WHOLE)
    file = SinkFile(str(made.file), made.book, made.clock)
    asked: list[int] = []

    def away(*of: object) -> None:
        asked.append(1)
        raise TieredError("away")

    with monkeypatch.context() as patched:
        patched.setattr("tiered.daemon.sinkfile.declared_changes", away)
        file.look()
        file.look()
        assert len(asked) == 1
        made.clock.advance(AGAIN_SECONDS)
        file.look()
        assert len(asked) == 2
    file.look()
    assert file.trouble is not None, "it waits"
    made.clock.advance(AGAIN_SECONDS)
    file.look()
    assert (file.trouble, len(made.book.sinks())) == (None, 2)


def test_without_a_file_nothing_is_asked(made: Declared) -> None:
    file = SinkFile("", made.book, made.clock)
    file.look()
    assert (file.trouble, made.book.sinks()) == (None, [])


def test_the_order_of_the_whole_log_is_refused_where_there_is_none(made: Declared) -> None:
    """Before any destination is asked."""
    for kind, options, said in (
        ("rocketmq", 'name_servers = "127.0.0.1:9"', "queues of brokers have no order"),
        ("iceberg", 'catalog = "sqlite:////nowhere"\ntable = "a.b"', "a table has no order"),
        ("kafka", 'brokers = "127.0.0.1:9"\npartitions = 1', "that of one partition"),
        ("kafka", 'brokers = "127.0.0.1:9"\ntopic = "all"\npartitions = 2', "that of one partition"),
        ("kafka", 'brokers = "127.0.0.1:9"\ntopic = "all"', "that of one partition"),
    ):
        made.write(f'[copy]\nkind = "{kind}"\nin_order = true\n[copy.options]\n{options}\n')
        with pytest.raises(Invalid) as refused:
            made.put()
        assert said in str(refused.value)
    made.write(WHOLE.replace("required = true", "in_order = true"))
    made.put()
    assert made.book.sink("copy").order.in_order is True
    made.write(WHOLE.replace("required = true", ""))
    assert made.put()["copy"] == ("in_order",)
    assert made.book.sink("copy").order.in_order is False
