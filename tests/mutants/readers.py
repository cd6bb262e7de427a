"""Opening and reading: what is asked for ahead, what a partial fold leaves out, what a damaged shard means."""

from __future__ import annotations

from tests.mutants import Mutant

_READER = "tests/unit/test_archive_reader.py"
_PARTIAL = "tests/unit/test_archive_partial.py"
_GOING_ON = "tests/scenes/test_store_going_on.py"
_PIECES = "tests/unit/test_pieces.py"
_FIGURES = "tests/unit/test_status_figures.py"
_CACHE = "tests/unit/test_commit_cache.py"
_GROWING = "tests/unit/test_store_growing.py"
_LISTING = "tests/unit/test_listing.py"
_LOOKS_AGAIN = "tests/scenes/test_compaction_histories.py"

MUTANTS = (
    Mutant(
        "tiered/codec/remoting/codes.py",
        "{32: 10, 64: 19}",
        "{32: 11, 64: 20}",
        "tests/unit/test_remoting_numbers.py",
    ),
    Mutant(
        "tiered/store/gone.py",
        "        self._met[key] = self._met.get(key, 0) + 1\n",
        "        self._met[key] = sum(self._met.values()) + 1\n",
        "tests/unit/test_store_gone.py",
    ),
    Mutant(
        "tiered/store/gone.py",
        "        if sum(self._met.values()) > MOST_LOOKS:\n",
        "        if False:\n",
        "tests/unit/test_store_gone.py",
    ),
    Mutant(
        "tiered/fetch/groups.py",
        "        alone = len(self.positions) == 1\n",
        "        alone = True\n",
        "tests/unit/test_fetch_expiry.py",
    ),
    Mutant(
        "tiered/fetch/answer.py",
        "        if self._offsets and int(block.edges[low + 1]) - int(block.edges[low]) > left_bytes:\n",
        "        if False:\n",
        "tests/unit/test_fetch_fetcher.py::test_a_record_larger_than_every_limit_comes_alone",
    ),
    Mutant(
        "tiered/fetch/answer.py",
        "        del bounds[max(2, bisect_right(bounds, max_bytes)) :]\n",
        "        del bounds[bisect_right(bounds, max_bytes) :]\n",
        f"{_GOING_ON}::test_who_goes_on_is_answered_as_who_comes_anew",
    ),
    Mutant(
        "tiered/archive/checkpoint/pieces.py",
        "found.append((key[: key.index(_TOPIC_END) + len(_TOPIC_END)], shard.raw_bytes))",
        "found.append((key, shard.raw_bytes))",
        _PIECES,
    ),
    Mutant(
        "tiered/archive/checkpoint/pieces.py",
        "        low = max(low, topic_key(after))\n",
        "        pass\n",
        f"{_PIECES}::test_a_page_begins_in_the_piece_of_its_topic",
    ),
    Mutant(
        "tiered/archive/checkpoint/shardview.py",
        "            stop = min(stop, bisect_left(self._first, self._end))\n",
        "            pass\n",
        _PIECES,
    ),
    Mutant(
        "tiered/archive/state/scope.py",
        "            named |= np.fromiter(map(self._inside.__getitem__, topics), np.bool_, len(topics))\n",
        "            pass\n",
        _PIECES,
    ),
    Mutant(
        "tiered/archive/checkpoint/pieces.py",
        "_begins(manifest, (kind,))",
        "_begins(manifest, (QUEUE,))",
        f"{_PIECES}::test_pages_of_lite_queues_are_cut_where_theirs_begin",
    ),
    Mutant(
        "tiered/archive/rewrite/waiting.py",
        "            if runs or item.path or item.ref.commit_seq >= self._floor\n",
        "            if True\n",
        _FIGURES,
    ),
    Mutant(
        "tiered/archive/rewrite/waiting.py",
        "            replace(item, references=runs)\n",
        "            item\n",
        _FIGURES,
    ),
    Mutant(
        "tiered/archive/checkpoint/format.py",
        "        there = [at < count and keys[at] == key for at, key in zip(places, wanted, strict=True)]\n",
        "        there = [at < count for at in places]\n",
        f"{_PIECES}::test_very_many_keys_are_looked_up_as_a_few",
    ),
    Mutant(
        "tiered/archive/state/scope.py",
        "            yield from pairs if end is None else takewhile(",
        "            yield from () if end is None else takewhile(",
        f"{_PIECES}::test_a_stretch_is_walked_as_its_queues_are_looked_up",
    ),
    Mutant(
        "tiered/archive/fold/logedits.py",
        "            if fold.scope.everything:\n",
        "            if True:\n",
        f"{_PARTIAL}::test_keys_of_new_objects_are_looked_up_by_who_folds_everything_alone",
    ),
    Mutant(
        "tiered/archive/checkpoint/shardview.py",
        "            if found.nbytes <= self._kept.maxsize:\n",
        "            if False:\n",
        "tests/scenes/test_cold_requests.py",
    ),
    Mutant(
        "tiered/fetch/ahead.py",
        "if found is None or found.state is not state or offset",
        "if found is None or offset",
        f"{_GOING_ON}::test_a_newer_state_is_looked_at_anew",
    ),
    Mutant(
        "tiered/fetch/ahead.py",
        " or offset != self._expected:\n                return None\n            return found if",
        ":\n                return None\n            return found if",
        f"{_GOING_ON}::test_who_goes_back_does_not_go_on",
    ),
    Mutant(
        "tiered/fetch/ahead.py",
        "                standing.left_bytes -= size\n",
        "",
        f"{_GOING_ON}::test_the_whole_way_is_taken_now_and_then",
    ),
    Mutant(
        "tiered/fetch/answer.py",
        "    if stop == last:\n",
        "    if False:\n",
        f"{_GOING_ON}::test_who_goes_on_is_answered_as_who_comes_anew",
    ),
    Mutant(
        "tiered/store/places.py",
        "not found.offset <= pull.offset < found.stop:\n",
        "not found.offset <= pull.offset:\n",
        f"{_GOING_ON}::test_who_goes_on_is_answered_as_who_comes_anew",
    ),
    Mutant(
        "tiered/store/places.py",
        "self._places[queue] if state is self._state else None",
        "self._places[queue]",
        f"{_GOING_ON}::test_a_newer_state_is_looked_at_anew",
    ),
    Mutant(
        "tiered/store/compactedpages.py",
        "    if known.bytes > MOST_BYTES:\n",
        "    if False:\n",
        "tests/scenes/test_gateway_compacted.py::test_what_is_read_for_a_page_is_bounded",
    ),
    Mutant(
        "tiered/store/compactedpages.py",
        "        return kept if fresh and offset is not None and offset < kept.decided.end else None\n",
        "        return kept\n",
        "tests/scenes/test_gateway_compacted.py::test_all_pages_together_are_what_a_fold_keeps",
    ),
    Mutant(
        "tiered/store/compactedpages.py",
        "        start = max(offset, known.min_offset)\n",
        "        start = known.min_offset\n",
        "tests/scenes/test_gateway_compacted.py::test_who_asks_for_what_came_since_reads_no_more_than_that",
    ),
    Mutant(
        "tiered/store/compactedpages.py",
        "            if before is None or kept.start <= before.start or not self._is_fresh(before):\n",
        "            if True:\n",
        "tests/scenes/test_gateway_compacted.py::test_who_asks_for_what_came_since_reads_no_more_than_that",
    ),
    Mutant(
        "tiered/archive/read/verify.py",
        "                elif item.retired_by is None and stored.length > item.length:\n",
        "                elif False:\n",
        "tests/scenes/test_aged_damage.py::test_something_written_behind_an_object",
    ),
    Mutant(
        "tiered/archive/read/verify.py",
        "        self._besides(report, limit)\n",
        "",
        "tests/scenes/test_verify_besides.py",
    ),
    Mutant(
        "tiered/archive/read/flatfile.py",
        "            if len(some) == 1:\n                raise\n",
        "            raise\n",
        "tests/scenes/test_sealed_head.py::test_that_row_group_is_refused_by_name_and_all_others_are_read",
    ),
    Mutant(
        "tiered/archive/rewrite/retention.py",
        "    if not holds or not sinks:\n",
        "    if False:\n",
        "tests/unit/test_holds.py::test_a_look_takes_holds_and_clocks_first",
    ),
    Mutant(
        "tiered/archive/rewrite/floor.py",
        "        if head.floor and not kept:",
        "        if False:",
        "tests/scenes/test_collection.py::test_shards_stay_where_the_listing_has_no_checkpoint_at_or_above_the_floor",
    ),
    Mutant(
        "tiered/sink/book.py",
        "self._read.keys() - listed.keys():",
        "():",
        "tests/unit/test_sink_book.py::test_a_sink_that_is_not_listed_any_more_is_not_removed",
    ),
    Mutant(
        "tiered/archive/read/hollow.py",
        "if item.length > there)",
        "if item.length < there)",
        "tests/scenes/test_cli_gaps.py::test_messages_inside_commits_that_others_stand_for_are_told_as_lost",
    ),
    Mutant(
        "tiered/store/compacted.py",
        "        if archived is None or archived > self.commit:\n",
        "        if False:\n",
        _LOOKS_AGAIN,
    ),
    Mutant(
        "tiered/cli/access.py",
        "                if scope.everything and not pieces and partial.scattered:\n",
        "                if False:\n",
        "tests/scenes/test_cli_pages.py -k folded_on_a_disk",
    ),
    Mutant(
        "tiered/archive/log/reader.py",
        "        read = self.read if until is None else self._read_again\n",
        "        read = self.read\n",
        f"{_GROWING} -k are_read_once",
    ),
    Mutant(
        "tiered/archive/state/listing.py",
        '    start = None if after is None else topic_key(after)[:-1] + b"\\x02"\n',
        "    start = None if after is None else topic_key(after)\n",
        f"{_LISTING} -k pages_of_hostile_names",
    ),
    Mutant(
        "tiered/archive/state/listing.py",
        "            elif open_topic.topic == made.topic:\n",
        "            elif False:\n",
        f"{_LISTING} -k what_their_queues_are",
    ),
    Mutant(
        "tiered/store/timeindex.py",
        "    return found if run.physical_start <= place < run.physical_end else None\n",
        "    return found\n",
        "tests/unit/test_consumequeue_times.py::test_what_is_not_sure_is_left_to_the_archive",
    ),
    Mutant(
        "tiered/store/timeindex.py",
        "    if not covered.begin <= run.physical_start <= run.physical_end <= covered.end:\n",
        "    if False:\n",
        "tests/unit/test_consumequeue_times.py::test_what_is_not_sure_is_left_to_the_archive",
    ),
    Mutant(
        "tiered/store/timeindex.py",
        " or run.start < span.first:\n",
        ":\n",
        "tests/unit/test_consumequeue_times.py::test_what_is_not_sure_is_left_to_the_archive",
    ),
    Mutant(
        "tiered/archive/read/reader.py",
        "        return width is None or width > FEW_QUEUES or (pairs is not None and pairs <= FEW_PAIRS)\n",
        "        return True\n",
        f"{_GROWING} -k few_queues_are_all",
    ),
    Mutant(
        "tiered/archive/checkpoint/partial.py",
        "        if not self._scope.covers(prefix):\n            raise not_loaded()",
        "        if False:\n            raise not_loaded()",
        f"{_GROWING} -k beside_what_is_loaded",
    ),
    Mutant(
        "tiered/archive/ahead.py",
        "                if value is None and then < asked:\n",
        "                if False:\n",
        f"{_READER} -k put_while_those_behind_it",
    ),
    Mutant(
        "tiered/archive/ahead.py",
        "    fitting = AHEAD_BYTES // largest_bytes if largest_bytes else MOST_AHEAD\n",
        "    fitting = MOST_AHEAD\n",
        f"{_READER} -k not_all_held_at_once",
    ),
    Mutant(
        "tiered/archive/ahead.py",
        "fitting, found - ONE_BY_ONE + 1))\n",
        "fitting, found))\n",
        f"{_READER} -k keeps_up_asks_for_nothing",
    ),
    Mutant(
        "tiered/archive/ahead.py",
        "fitting, 4 * found, known))\n",
        "fitting, 4 * found, MOST_KNOWN))\n",
        "tests/unit/test_numbers_ahead.py -k nothing_beyond_it_in_vain",
    ),
    Mutant(
        "tiered/archive/ahead.py",
        "    fitting = AHEAD_BYTES // largest_bytes if largest_bytes else 1\n",
        "    fitting = MOST_KNOWN\n",
        "tests/unit/test_numbers_ahead.py -k not_hold_more_bytes",
    ),
    Mutant(
        "tiered/daemon/checkpointer.py",
        "counted + self._behind >= self._commits",
        "counted >= self._commits",
        "tests/unit/test_status.py -k earlier_processes",
    ),
    Mutant(
        "tiered/archive/fold/runs.py",
        "        _append(fold, batch, first_run + rows)\n",
        "        _append(fold, batch, first_run + np.arange(len(batch)))\n",
        f"{_PARTIAL} -k says_of_them",
    ),
    Mutant(
        "tiered/archive/fold/runs.py",
        "    _check_shapes(fold, batch)\n    fold.appended_to",
        "    fold.appended_to",
        f"{_PARTIAL} -k rules_of_the_log",
    ),
    Mutant(
        "tiered/archive/fold/replace.py",
        "            fold.runs += 1\n            continue\n",
        "            continue\n",
        f"{_PARTIAL} -k says_of_them",
    ),
    Mutant(
        "tiered/archive/fold/context.py",
        '''now below the floor."""
        if not self.scope.everything:
            return
''',
        '''now below the floor."""
''',
        f"{_PARTIAL} -k says_of_them",
    ),
    Mutant(
        "tiered/archive/log/reader.py",
        "        if missing is not None or store.applied() != position:\n",
        "        if False:\n",
        f"{_PARTIAL} -k nothing_makes_good",
    ),
    Mutant(
        "tiered/archive/log/commitcache.py",
        " and start + length <= len(kept.data):\n",
        ":\n",
        f"{_CACHE} -k bounded",
    ),
)
