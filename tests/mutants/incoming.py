"""From the broker's files to a proven commit: what is waited for, copied, compared, and released last."""

from __future__ import annotations

from tests.mutants import Mutant

_SOURCE_LOCAL = "tests/unit/test_source_local.py"
_SOURCE_LARGE = "tests/unit/test_source_large.py"
_SOURCE_AWAY = "tests/unit/test_source_away.py"
_SOURCE_HOLD = "tests/unit/test_source_hold.py"
_LINE = "tests/unit/test_line.py"
_COMMITTER = "tests/unit/test_committer.py"
_DISPATCHER = "tests/unit/test_dispatcher.py"
_WRITE_GUARDS = "tests/unit/test_write_guards.py"
_INDEX = "tests/property/test_consumequeue_index.py"
_FEED = "tests/unit/test_consumequeue_feed.py"
_SOURCE_ROCKS = "tests/unit/test_source_rocks.py"
_SOURCE_SEARCH = "tests/unit/test_source_search.py"

MUTANTS = (
    Mutant(
        "tiered/source/search.py",
        "        behind = min(position + _WINDOW_BYTES, stored[1] - MAGIC_AT)\n",
        "        behind = position + _WINDOW_BYTES\n",
        f"{_SOURCE_SEARCH}::test_no_hole_is_read",
    ),
    Mutant(
        "tiered/source/search.py",
        "        position = max(position, stored[0] - MAGIC_AT - 3)\n",
        "        position = max(position, stored[0])\n",
        f"{_SOURCE_SEARCH}::test_every_magic_is_found_in_order",
    ),
    Mutant(
        "tiered/source/search.py",
        "behind - position + MAGIC_AT + 3)\n",
        "behind - position + MAGIC_AT)\n",
        f"{_SOURCE_SEARCH}::test_every_magic_is_found_in_order",
    ),
    Mutant(
        "tiered/source/descriptors.py",
        "        return None if error.errno == errno.ENXIO else (position, length)\n",
        "        return None\n",
        f"{_SOURCE_SEARCH}::test_every_magic_is_found_in_order",
    ),
    Mutant(
        "tiered/consumequeue/writer.py",
        '    heads["running_max"] = np.maximum(running_before, heads["max_time"])\n',
        '    heads["running_max"] = heads["max_time"]\n',
        f"{_INDEX}::test_long_lives",
    ),
    Mutant(
        "tiered/consumequeue/writer.py",
        '        anew = known & ((rows.offset[first] < tails["head"]["end"]) | again)\n',
        "        anew = known & again\n",
        f"{_INDEX}::test_long_lives",
    ),
    Mutant(
        "tiered/consumequeue/writer.py",
        '            if int(tail["head"]["end_physical"]) > physical:\n',
        "            if False:\n",
        f"{_INDEX}::test_long_lives",
    ),
    Mutant(
        "tiered/daemon/groupbook.py",
        "old[:8] != value[:8] if key[:1] == _OFFSET else old != value",
        "old != value",
        "tests/unit/test_groups.py::test_only_what_changed_is_written",
    ),
    Mutant(
        "tiered/source/grouplists.py",
        '            if os.path.exists(path + ".bak"):',
        "            if False:",
        "tests/unit/test_groups.py::test_a_file_that_is_being_rewritten_is_no_answer",
    ),
    Mutant(
        "tiered/source/rocks.py",
        "DBRecoveryMode.absolute_consistency()",
        "DBRecoveryMode.point_in_time()",
        f"{_SOURCE_ROCKS}::test_topics_behind_damage_in_the_stores_log_do_not_count_as_deleted",
    ),
    Mutant(
        "tiered/source/topics.py",
        "self._of, self._sure = now, now == self._of",
        "self._of, self._sure = now, True",
        "tests/unit/test_broker_topics.py::test_a_list_that_was_written_twice_within_one_tick",
    ),
    Mutant(
        "tiered/write/indexing.py",
        "            if start <= position < end:\n",
        "            if False:\n",
        f"{_FEED}::test_a_recorded_gap_is_stepped_over",
    ),
    Mutant(
        "tiered/daemon/indexing.py",
        "        if not self.lag_bytes() or end != self._seen:\n",
        "        if True:\n",
        "tests/unit/test_daemon_indexing.py::test_an_index_that_does_not_move_is_said_once_and_its_end_once",
    ),
    Mutant(
        "tiered/write/indexing.py",
        "        if head.start < covered.end:\n",
        "        if False:\n",
        f"{_FEED}::test_a_broker_that_lost_its_tail_is_indexed_from_there_anew",
    ),
    Mutant(
        "tiered/write/indexing.py",
        "            self._redo(covered.end, head)\n",
        "            self._writer.add((), _NO_STARTS, _NO_ROWS, head.start)\n",
        f"{_FEED}::test_what_no_draft_tells_is_read_from_the_log",
    ),
    Mutant(
        "tiered/source/rocks.py",
        '_NOT_LINKED = (_LOCK, "rocksdict-config.json")',
        "_NOT_LINKED = ()",
        f"{_SOURCE_ROCKS}::test_a_file_of_the_wrapper_beside_the_brokers_is_not_written_through",
    ),
    Mutant(
        "tiered/source/topiclists.py",
        "        if rocks.in_use(os.path.join(store_dir, place.directory)):\n",
        "        if False:\n",
        f"{_SOURCE_ROCKS}::test_of_several_lists_the_one_counts_that_a_broker_has_open",
    ),
    Mutant(
        "tiered/source/topiclists.py",
        "    return found if versioned else None\n",
        "    return found\n",
        f"{_SOURCE_ROCKS}::test_a_store_without_users_topics_has_them_all_deleted_only_if_it_ever_had_one",
    ),
    Mutant(
        "tiered/source/tail.py",
        "            if crc32c(data) == self._seen[1]:\n                return True\n",
        "            return True\n",
        f"{_SOURCE_LOCAL}::test_last_record_that_changes_between_two_looks_starts_again",
    ),
    Mutant(
        "tiered/source/tail.py",
        "        if now - self._since < self._wait_seconds:\n            return False\n        if not cheap",
        "        if not cheap",
        f"{_SOURCE_LOCAL}::test_torn_last_record_behind_a_confirming_header_is_not_returned",
    ),
    Mutant(
        "tiered/source/reading.py",
        "        return _Last.TORN if lacks_its_end(data) else _Last.COUNTS\n",
        "        return _Last.COUNTS\n",
        f"{_SOURCE_LOCAL}::test_a_writer_stopped_inside_properties_or_topic_is_waited_for",
    ),
    Mutant(
        "tiered/source/reading.py",
        "        good = sound_records(view, frames, count, start)\n",
        "        good = frames\n",
        f"{_SOURCE_LOCAL}::test_records_with_a_successor_count_at_once_and_the_last_after_a_second_look",
    ),
    Mutant(
        "tiered/source/reading.py",
        "        if self._chain.limit.allows(head.size):\n",
        "        if False:\n",
        f"{_SOURCE_LARGE}::test_what_the_broker_accepts_is_archived",
    ),
    Mutant(
        "tiered/source/reading.py",
        "        return seam, False\n",
        "        return count, more\n",
        "tests/unit/test_source_life.py::test_leftovers_of_a_former_life_with_equal_sizes_wait_for_the_broker",
    ),
    Mutant(
        "tiered/source/reading.py",
        "        if not self._complete.known(file, start, head):\n",
        "        if False:\n",
        f"{_SOURCE_LARGE}::test_one_that_is_not_whole_is_damage",
    ),
    Mutant(
        "tiered/source/local.py",
        "            if chunk.status is not ReadStatus.RECORDS and (away or self._catalog.returns != returns):\n",
        "            if False:\n",
        f"{_SOURCE_AWAY}::test_what_is_held_is_read_on_and_nothing_is_compared",
    ),
    Mutant(
        "tiered/source/local.py",
        "            self._copy(self._catalog.own(), start, end, memoryview(copy))\n",
        "            self._copy(self._catalog.table(), start, end, memoryview(copy))\n",
        f"{_SOURCE_HOLD}::test_local_copies_never_come_from_the_hold",
    ),
    Mutant(
        "tiered/source/catalog.py",
        "                linked = self._links.link(self._files.table.files)\n",
        "                pass\n",
        f"{_SOURCE_HOLD}::test_deleted_files_are_read_from_the_hold",
    ),
    Mutant(
        "tiered/source/files.py",
        '                raise _Lost("a commitlog directory has lost its files", path=directory, hint=_AWAY_HINT)\n',
        "                pass\n",
        f"{_SOURCE_AWAY}::test_one_of_two_disks_that_is_empty_is_away",
    ),
    Mutant(
        "tiered/source/files.py",
        "        with opened_directory(directory) as descriptor, os.scandir(descriptor) as entries:\n",
        "        with opened_directory(directory) as descriptor, os.scandir(directory) as entries:\n",
        f"{_SOURCE_AWAY}::test_a_store_that_goes_in_the_middle_of_a_look_is_not_a_log_that_was_cut",
    ),
    Mutant(
        "tiered/source/hold.py",
        "            if found.st_nlink == 1:\n                alone",
        "            if True:\n                alone",
        f"{_SOURCE_HOLD}::test_deleted_files_are_read_from_the_hold",
    ),
    Mutant(
        "tiered/source/hold.py",
        "            if kept <= self._settings.max_bytes and not self._partition_full(file):\n",
        "            if kept <= self._settings.max_bytes:\n",
        f"{_SOURCE_HOLD}::test_a_full_partition_lets_go_only_what_frees_space",
    ),
    Mutant(
        "tiered/source/hold.py",
        "                self._on_let_go(ByteRange(file.base, file.end))\n",
        "                pass\n",
        f"{_SOURCE_HOLD}::test_over_the_byte_budget_the_oldest_go_and_the_reader_reports_a_gap",
    ),
    Mutant(
        "tiered/source/limit.py",
        "self.bytes = max(self.bytes, min(accepted + BESIDES_BODY_BYTES, LARGEST_RECORD_BYTES))",
        "self.bytes = max(self.bytes, min(accepted, LARGEST_RECORD_BYTES))",
        f"{_SOURCE_LARGE}::test_what_the_broker_accepts_is_archived",
    ),
    Mutant(
        "tiered/daemon/app.py",
        "        source.hold()\n        end =",
        "        end =",
        "tests/scenes/test_app.py::test_a_start_links_the_brokers_files_before_anything_else",
    ),
    Mutant(
        "tiered/source/local.py",
        "        if count < len(target):\n",
        "        if False:\n",
        f"{_SOURCE_LOCAL}::test_a_copy_of_a_file_that_became_short_is_no_zeros",
    ),
    Mutant(
        "tiered/archive/state/recentqueues.py",
        "            self._put(numbers[absent], *found)\n",
        "",
        "tests/unit/test_dispatcher.py::test_a_commit_looks_each_queue_up_once",
    ),
    Mutant(
        "tiered/daemon/status.py",
        "RECOUNT_REST * (ended - begun)",
        "0.0",
        "tests/unit/test_status.py::test_a_walk_over_all_queues_is_followed_by_a_rest",
    ),
    Mutant(
        "tiered/archive/log/line.py",
        "        for upload in settled.uploads:\n            upload.result()\n",
        "",
        f"{_COMMITTER}::test_an_object_key_that_is_taken_stops_everything",
    ),
    Mutant(
        "tiered/archive/log/line.py",
        "        if flush.next_offset is not None:\n            self._release(flush.next_offset)\n",
        "",
        f"{_COMMITTER}::test_objects_then_commit_then_cache_then_release",
    ),
    Mutant(
        "tiered/archive/log/line.py",
        "        store_time_ms = self.log.put(settled.commit, again)  # BEFORE_COMMIT, AFTER_COMMIT, AFTER_METADATA\n"
        "        if flush.next_offset is not None:\n"
        "            self._release(flush.next_offset)\n",
        "        if flush.next_offset is not None:\n"
        "            self._release(flush.next_offset)\n"
        "        store_time_ms = self.log.put(settled.commit, again)\n",
        f"{_COMMITTER}::test_objects_then_commit_then_cache_then_release",
    ),
    Mutant(
        "tiered/archive/log/line.py",
        "            return self._count() < self._depth\n\n    def pending",
        "            return True\n\n    def pending",
        f"{_COMMITTER}::test_commits_are_proven_in_order",
    ),
    Mutant(
        "tiered/write/preparer.py",
        "        if taken > most and queues > 1:\n",
        "        if False:\n",
        f"{_DISPATCHER} -k too_many_queues",
    ),
    Mutant(
        "tiered/write/dispatcher.py",
        "            self._preparer.learn(queues, proven.commit.footer.edits_length)\n",
        "            pass\n",
        f"{_DISPATCHER} -k as_large_as_the_edits",
    ),
    Mutant(
        "tiered/write/preparer.py",
        "        if len(checked.starts) != len(extent.starts):\n",
        "        if False:\n",
        f"{_DISPATCHER}::test_a_damaged_record_is_approached_alone_and_given_up_late",
    ),
    Mutant(
        "tiered/write/preparer.py",
        "        if not same_broker():\n",
        "        if False:\n",
        f"{_DISPATCHER}::test_a_restart_between_copy_and_plan_throws_the_copy_away",
    ),
    Mutant(
        "tiered/write/preparer.py",
        "            drafted.exception()  # the thread that settles its flush gets the error\n",
        "            pass\n",
        f"{_WRITE_GUARDS}::test_memory_is_not_used_again_while_a_draft_looks_at_it",
    ),
    Mutant(
        "tiered/write/preparer.py",
        "        if self._source.file_start(extent.start) == extent.start:\n",
        "        if False:\n",
        f"{_WRITE_GUARDS}::test_a_mark_sums_from_its_own_files_first_byte",
    ),
    Mutant(
        "tiered/write/router.py",
        '    same = present & (table["lineage"] == lineage) & (table["generation"] > 0)\n',
        '    same = present & (table["generation"] > 0)\n',
        f"{_WRITE_GUARDS}::test_queues_of_another_lineage_are_begun_anew",
    ),
    Mutant(
        "tiered/write/dispatcher.py",
        "        if mark != self._broker or self._comparison.gap_was_rewritten():\n",
        "        if self._comparison.gap_was_rewritten():\n",
        f"{_DISPATCHER}::test_a_restart_of_the_broker_drops_the_buffer_and_compares_again",
    ),
    Mutant(
        "tiered/write/dispatcher.py",
        "            self.buffer.read_again(extent.first_seen)\n",
        "",
        f"{_DISPATCHER}::test_a_restart_without_a_loss_does_not_make_messages_wait_longer",
    ),
    Mutant(
        "tiered/write/dispatcher.py",
        "        self._must_reconcile = True\n",
        "",
        f"{_DISPATCHER}::test_a_comparison_that_fails_is_made_again_before_anything_is_read",
    ),
    Mutant(
        "tiered/write/dispatcher.py",
        "            self.position = done  # nothing",
        "            pass  # nothing",
        f"{_DISPATCHER}::test_bytes_that_go_away_between_read_and_copy_are_read_again",
    ),
    Mutant(
        "tiered/opening/lineage.py",
        "        if local != record.data:\n            return end, False\n",
        "",
        "tests/unit/test_lineage.py::test_the_walk_stops_at_the_first_difference",
    ),
    Mutant(
        "tiered/write/dispatcher.py",
        "        self._source.hold()\n",
        "",
        f"{_WRITE_GUARDS}::test_every_step_links_new_files_before_it_reads",
    ),
    Mutant(
        "tiered/source/reading.py",
        "        return moved_on or self._clock.now_ms() - (left_ms or 0) >= self._wait_ms\n",
        "        return True\n",
        f"{_SOURCE_LOCAL}::test_corrupt_bytes_are_given_up_only_after_the_wait_and_with_data_behind",
    ),
    Mutant(
        "tiered/source/reading.py",
        "        return moved_on or self._clock.now_ms() - (left_ms or 0) >= self._wait_ms\n",
        "        return False\n",
        "tests/unit/test_source_damage.py -k has_left",
    ),
    Mutant(
        "tiered/source/reading.py",
        "        if not torn and self._chain.whole(file, start):\n",
        "        if False:\n",
        "tests/unit/test_source_damage.py -k about_to_be_given_up",
    ),
    Mutant(
        "tiered/archive/log/line.py",
        "                entry = min(self._waiting, key=lambda waiting: waiting.priority)\n",
        "                entry = self._waiting[0]\n",
        f"{_LINE}::test_archiving_goes_before_whatever_else_waits",
    ),
    Mutant(
        "tiered/archive/log/line.py",
        "            if any(not entry.offered for entry in self._entries()):\n",
        "            if False:\n",
        f"{_LINE}::test_what_is_waited_for_begins_with_an_idle_line",
    ),
    Mutant(
        "tiered/archive/log/writer.py",
        "        if place is not self._place:\n",
        "        if False:\n",
        f"{_LINE}::test_a_commit_is_planned_once_while_its_place_is_held",
    ),
    Mutant(
        "tiered/archive/log/writer.py",
        "        with self._planning:\n",
        "        if True:\n",
        f"{_LINE}::test_a_place_is_one_callers_alone",
    ),
)
