"""The head of one row group of a sealed file is damaged, and what the file was sealed from is collected: that row group is
refused by name, everything else of the file is read, and nobody takes the rest for everything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.aged import BAND_BYTES
from tests.kit.assemble import KEYS
from tests.kit.fetchscene import Scene, scene
from tests.kit.keyed import view_of
from tests.kit.merging import merge_all, spread
from tests.kit.scrubbing import flip
from tests.kit.sealing import after_midnight, seal_all
from tests.scenes.test_mend import Mending, needed, uncollected_gone
from tiered.archive.read.flatfile import FlatMessageFile
from tiered.archive.read.lookup import KeyLookup, query_key
from tiered.archive.read.verify import Verifier
from tiered.errors import Corrupt
from tiered.model import ByteRange, MessageQueue


@dataclass
class Spoiled:
    """``lost``: the queue offsets that lie in the row group; ``head``: where its head is in the file at ``path``."""

    made: Scene
    mending: Mending
    path: str
    head: ByteRange
    lost: set[tuple[MessageQueue, int]]
    column: str

    @property
    def serves(self) -> bool:
        """Whether a record needs nothing of what is damaged: which commit archived it is no part of it."""
        return self.column == COMMITS

    @property
    def key(self) -> str:
        return KEYS.key(self.path)

    def check(self, error: Corrupt) -> None:
        """It names the file, and a place in the head."""
        assert error.fields["key"] == self.key
        assert self.head.start <= int(str(error.fields["position"])) < self.head.end, error


COMMITS = "commit_seq"


@pytest.fixture(
    params=[(0, "queue_offset"), (-1, "store_timestamp"), (0, COMMITS)], ids=lambda p: f"{p[1]} {p[0]}"
)
def spoiled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Spoiled]:
    with scene(tmp_path) as made:
        spread(made, 6)
        merge_all(made.daemon)
        after_midnight(made)
        seal_all(made.daemon, band_bytes=BAND_BYTES)
        mending = Mending(made)
        uncollected_gone(made)
        for path in needed(made):
            item = made.state.object_at(path)
            assert item is not None
            segment = made.objects().sealed(item).segment
            groups = segment.directory.groups
            banded = [n for n in range(len(groups)) if segment.directory.is_banded(n)]
            if len(groups) > 1 and banded:
                break
        which, column = request.param
        number = banded[which]
        head = segment.head_range(number)
        assert head is not None
        rows = [segment.metadata.row_group(n).num_rows for n in range(len(groups))]
        first = sum(rows[:number])
        lost = set()
        for run in made.state.runs_all():
            if run.object != item.ref:
                continue
            offsets = [offset for offset, _, _ in mending.rows[run.queue, run.generation, None]]
            mine = sorted(offset for offset in offsets if run.start <= offset < run.end)
            lost |= {
                (run.queue, offset)
                for row, offset in enumerate(mine, run.first_row)
                if first <= row < first + rows[number]
            }
        assert lost
        group = segment.metadata.row_group(number)
        page = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column)
        start = page.dictionary_page_offset or page.data_page_offset
        assert head.start <= start < head.end
        flip(made.provider, path, start + page.total_compressed_size - 1)
        yield Spoiled(made, mending, path, head, lost, column)


def test_that_row_group_is_refused_by_name_and_all_others_are_read(spoiled: Spoiled) -> None:
    view, refused = view_of(spoiled.made), set()
    for (queue, _, closed_by), rows in spoiled.mending.rows.items():
        assert closed_by is None
        for offset, record, _ in rows:
            try:
                found = next(iter(FlatMessageFile(view.state, view.objects, queue).read(offset, 1)))
            except Corrupt as error:
                spoiled.check(error)
                refused.add((queue, offset))
                continue
            assert bytes(found.record(0)) == record
    assert bool(refused) != spoiled.serves
    assert refused <= spoiled.lost, "what lies before it in the same request is read"


def test_who_pulls_meets_it_and_goes_on_behind_it(spoiled: Spoiled) -> None:
    """A consumer's pulls: what lies before, the damage and neither an end nor an empty answer, and what lies behind."""
    made = spoiled.made
    fetcher = made.fetcher(objects=view_of(made).objects)
    refused = set()
    for (queue, _, _), rows in spoiled.mending.rows.items():
        at = 0
        while at < len(rows):
            try:
                got = made.read(fetcher, rows[at][0], queue=queue)
            except Corrupt as error:
                spoiled.check(error)
                refused.add((queue, rows[at][0]))
                at += 1
                continue
            assert got.records, "no answer is empty"
            assert [bytes(record) for record in got.records] == [
                record for _, record, _ in rows[at : at + len(got.records)]
            ]
            at += len(got.records)
            assert at == len(rows) or got.next_offset <= rows[at][0]
    assert bool(refused) != spoiled.serves
    assert refused <= spoiled.lost


def test_a_look_up_is_whole_or_refused(spoiled: Spoiled) -> None:
    view, refused = view_of(spoiled.made), 0
    for topic in ("Orders", "Payments"):
        for key in [f"k{n}" for n in range(8)] + [f"only-{n}" for n in range(20)]:
            wanted = [
                raw
                for m, raw in spoiled.made.broker.sent
                if m.topic == topic and key in m.keys and not m.sys_flag
            ]
            try:
                found = [item.record for item in query_key(view.state, view.objects, KeyLookup(topic, key))]
            except Corrupt as error:
                spoiled.check(error)
                refused += 1
                continue
            assert sorted(found) >= sorted(wanted)
    assert bool(refused) != spoiled.serves


def test_verify_scrub_and_repair_name_it(spoiled: Spoiled) -> None:
    report = Verifier(view_of(spoiled.made)).run(deep=True)
    assert {found.key for found in report.damage} == {spoiled.key}
    positions = {int(found.detail.partition("position=")[2].split(",")[0]) for found in report.damage}
    assert all(spoiled.head.start <= position < spoiled.head.end for position in positions)
    done = spoiled.mending.all(spoiled.mending.task(copied=False))
    assert list(spoiled.mending.looking.damaged()) == [spoiled.path]
    (trouble,) = {one.trouble for one in done if one.trouble}
    assert "nowhere else" in str(trouble)
    assert spoiled.path in needed(spoiled.made), "what nobody can mend stays, and stays listed"


def test_the_brokers_log_mends_it_where_the_file_still_says_which_commits_they_were(spoiled: Spoiled) -> None:
    done = spoiled.mending.all(spoiled.mending.task(copied=False, local=True))
    troubles = [one.trouble for one in done if one.trouble]
    if spoiled.column in (COMMITS, "queue_offset"):
        assert "nowhere else" in str(troubles[0])
        assert list(spoiled.mending.looking.damaged()) == [spoiled.path]
    else:
        assert troubles == []
        spoiled.mending.check_whole()


def test_a_copy_mends_it(spoiled: Spoiled) -> None:
    done = spoiled.mending.all()
    assert [one.trouble for one in done if one.trouble] == []
    assert spoiled.path not in needed(spoiled.made)
    spoiled.mending.check_whole()
