"""From the archive to a reader: stores, blocks, budgets, and what an answer says of what it lacks."""

from __future__ import annotations

from tests.mutants import Mutant

_PROVIDER_WRAP = "tests/unit/test_provider_wrap.py"
_PROVIDER_FAULTS = "tests/unit/test_provider_faults.py"
_FETCH_WINDOW = "tests/unit/test_fetch_window.py"
_FETCH_TABLES = "tests/unit/test_fetch_tables.py"
_FETCH_LEAKS = "tests/unit/test_fetch_leaks.py"
_STORE_READS = "tests/scenes/test_store_reads.py"

MUTANTS = (
    Mutant(
        "tiered/fetch/bands.py",
        "            if before is None or before == reader:\n",
        "            if before is None:\n",
        "tests/scenes/test_fetch_bands.py::test_neither_backwards_nor_here_and_there_nor_by_one_queue_alone",
    ),
    Mutant(
        "tiered/fetch/bands.py",
        "                self._rest -= 1\n                return\n",
        "                self._rest -= 1\n",
        "tests/scenes/test_fetch_bands.py::test_it_rests_after_waste_and_when_the_store_asks_for_patience",
    ),
    Mutant(
        "tiered/provider/posix.py",
        '                raise Conflict("the key exists", key=key, url=self.url) from None\n',
        "                return\n",
        "tests/contract/test_provider_contract.py::test_an_empty_object_exists -k posix",
    ),
    Mutant(
        "tiered/provider/posix.py",
        "                if os.stat(temporary, dir_fd=at).st_nlink == 2:\n                    return\n",
        "                pass\n",
        "tests/unit/test_provider_posix.py::test_a_link_whose_reply_was_lost_is_a_success",
    ),
    Mutant(
        "tiered/provider/wrap.py",
        "                if failures:\n                    mark",
        "                if False:\n                    mark",
        f"{_PROVIDER_WRAP}::test_conflict_after_an_unknown_try_is_marked_and_a_first_one_is_not",
    ),
    Mutant(
        "tiered/provider/wrap.py",
        "        if tries >= self._attempts:\n",
        "        if False:\n",
        f"{_PROVIDER_WRAP}::test_retrying_is_bounded_and_says_how_often",
    ),
    Mutant(
        "tiered/provider/resolve.py",
        "        if object_length == length and (same(found) if same else found.data == wanted):\n",
        "        if object_length == length:\n",
        f"{_PROVIDER_FAULTS}::test_put_own_refuses_what_is_not_ours",
    ),
    Mutant(
        "tiered/provider/s3.py",
        '        condition = {"IfNoneMatch": "*"} if create_only else {}\n',
        "        condition: dict[str, str] = {}\n",
        f"{_PROVIDER_FAULTS}::test_our_own_lost_answer_is_not_a_plain_conflict",
    ),
    Mutant(
        "tiered/provider/s3errors.py",
        " or (status == 404 and (not code or code.isdigit())):\n",
        " or status == 404:\n",
        f"{_PROVIDER_FAULTS}::test_what_a_moment_cannot_fix_is_asked_once_and_says_what_to_set",
    ),
    Mutant(
        "tiered/archive/read/runs.py",
        "                queue.topic, queue.queue_id, run.generation, ref.commit_seq, ref.index, begin + number\n",
        "                queue.topic, queue.queue_id, run.generation, 0, 0, begin + number\n",
        "tests/unit/test_fetch_fetcher.py::test_reading_through_gives_every_record_once",
    ),
    Mutant(
        "tiered/fetch/window.py",
        "        self._decrease()\n        self.window_bytes = self.threshold_bytes\n",
        "        self._decrease()\n",
        f"{_FETCH_WINDOW}::test_waste_halves_it_and_it_grows_by_addition_from_there",
    ),
    Mutant(
        "tiered/fetch/window.py",
        "        self._decrease()\n        self.window_bytes = UNIT_BYTES\n",
        "        self._decrease()\n",
        f"{_FETCH_WINDOW}::test_a_store_that_pushes_back_means_slow_start_to_half",
    ),
    Mutant(
        "tiered/fetch/budget.py",
        "            if len(self._waiting) or self._closed or self.ahead_bytes + size > self.ahead_limit_bytes:\n",
        "            if len(self._waiting) or self._closed:\n",
        "tests/unit/test_fetch_budget.py::test_read_ahead_takes_what_is_free_and_not_the_last_part",
    ),
    Mutant(
        "tiered/fetch/cache.py",
        "            if block.key in self._entries or block.cost_bytes > free:\n",
        "            if block.key in self._entries:\n",
        "tests/unit/test_fetch_cache.py::test_a_block_is_kept_once_and_weighed",
    ),
    Mutant(
        "tiered/fetch/course.py",
        "            stretch = self._stretches.get(queue) if state is self._state else None\n",
        "            stretch = self._stretches.get(queue)\n",
        "tests/unit/test_fetch_course.py::test_another_state_or_generation_begins_anew",
    ),
    Mutant(
        "tiered/archive/read/runs.py",
        "    if end_block > len(table):\n",
        "    if False:\n",
        f"{_FETCH_TABLES}::test_a_table_that_does_not_fit_the_fold",
    ),
    Mutant(
        "tiered/archive/read/runs.py",
        "    if int(starts[0]) != run.first_queue_offset or",
        "    if",
        f"{_FETCH_TABLES}::test_a_table_that_does_not_fit_the_fold",
    ),
    Mutant(
        "tiered/archive/read/runs.py",
        ' or int(table["rows"][first:end_block].sum()) != run.rows:\n',
        ":\n",
        f"{_FETCH_TABLES}::test_a_table_that_does_not_fit_the_fold",
    ),
    Mutant(
        "tiered/fetch/block.py",
        "crc32c=ref.crc32c, key=key",
        "crc32c=crc32c(stored), key=key",
        f"{_FETCH_TABLES}::test_a_block_that_is_not_what_its_table_says",
    ),
    Mutant(
        "tiered/archive/read/runs.py",
        "    if not right or (np.diff(offsets) <= 0).any():\n",
        "    if False:\n",
        f"{_FETCH_TABLES}::test_records_that_own_other_offsets_than_their_table_says",
    ),
    Mutant(
        "tiered/fetch/loader.py",
        "            flight.future.set_exception(e)\n"
        "        else:\n"
        "            self._flights.leave(flight)\n"
        "            flight",
        "            flight.future.set_exception(e)\n"
        "            return\n"
        "        else:\n"
        "            self._flights.leave(flight)\n"
        "            flight",
        f"{_FETCH_LEAKS}::test_tables_and_blocks_that_fail_are_given_back",
    ),
    Mutant(
        "tiered/fetch/loader.py",
        "            flight.future.set_exception(e)\n        else:\n            self._flights.leave(flight)  # after",
        "            flight.future.set_exception(e)\n"
        "            return\n"
        "        else:\n"
        "            self._flights.leave(flight)  # after",
        f"{_FETCH_LEAKS}::test_tables_and_blocks_that_fail_are_given_back",
    ),
    Mutant(
        "tiered/store/answer.py",
        "    if offset < low:\n",
        "    if False:\n",
        f"{_STORE_READS}::test_bad_and_border_input",
    ),
    Mutant(
        "tiered/store/answer.py",
        "    if offset > high:\n        return answered(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high)\n",
        "",
        f"{_STORE_READS}::test_bad_and_border_input",
    ),
    Mutant(
        "tiered/store/answer.py",
        "            return answered(GetMessageStatus.OFFSET_FOUND_NULL, min(gap.end, high))\n",
        "            continue\n",
        f"{_STORE_READS}::test_a_hole_is_said_and_never_stepped_over",
    ),
    Mutant(
        "tiered/store/answer.py",
        "    if fetched.next_offset > place.stop:\n",
        "    if False:\n",
        f"{_STORE_READS}::test_a_hole_is_said_and_never_stepped_over",
    ),
    Mutant(
        "tiered/store/puller.py",
        "            look = self._follower.follow_async(force=gone.any, here=here)\n",
        "            look = self._follower.follow_async(force=False, here=here)\n",
        "tests/scenes/test_aged_pulls.py::test_a_change_during_a_pull",
    ),
    Mutant(
        "tiered/store/puller.py",
        "            elif looked or found.status not in ELSEWHERE:\n",
        "            else:\n",
        f"{_STORE_READS}::test_a_new_generation_is_what_is_served",
    ),
    Mutant(
        "tiered/archive/read/keytables.py",
        "        if known is not None and not len(known.runs(hashed)):\n",
        "        if known is not None:\n",
        "tests/property/test_key_lookups.py -k random",
    ),
    Mutant(
        "tiered/store/messages.py",
        "                if found is not None and store_host in (None, found.message.store_host):\n",
        "                if found is not None:\n",
        "tests/scenes/test_store_lookups.py::test_every_record_by_its_place",
    ),
    Mutant(
        "tiered/fetch/answer.py",
        " or (held and self.size + size + len(record) > self._max_bytes):\n",
        ":\n",
        "tests/unit/test_fetch_fetcher.py -k bytes_behind_a_filter",
    ),
    Mutant(
        "tiered/fetch/answer.py",
        "            if held >= self._max_count or (held",
        "            if (held",
        "tests/unit/test_fetch_fetcher.py -k bytes_behind_a_filter",
    ),
    Mutant(
        "tiered/fetch/answer.py",
        "        self.full = len(self._offsets) >= self._max_count\n",
        "        self.full = False\n",
        "tests/unit/test_fetch_fetcher.py -k full_at_a_blocks_end",
    ),
)
