"""The key-value view: what decides a write, what is not passed over, what is said of a write that nobody knows of."""

from __future__ import annotations

from tests.mutants import Mutant

_WRITES = "tests/property/test_kv_writes.py"
_SOURCE = "tests/unit/test_source_local.py"
_REDO = "tests/unit/test_kv_redo.py"
_PUT = "tests/unit/test_kv_putting.py"
_FEED = "tests/scenes/test_kv_feed.py"

MUTANTS = (
    Mutant(
        "tiered/view/redo.py",
        "    if condition.version is not None and entry.version != condition.version:\n",
        "    if condition.version is not None and entry.version < condition.version:\n",
        f"{_REDO}::test_a_condition_sees_what_all_writes_before_it_left",
    ),
    Mutant(
        "tiered/view/redo.py",
        "found = entries[key] if key in entries else held[key]",
        "found = held[key]",
        f"{_REDO}::test_a_condition_sees_what_all_writes_before_it_left",
    ),
    Mutant(
        "tiered/view/redo.py",
        "entry.expires_ms <= now_ms:",
        "entry.expires_ms < now_ms:",
        f"{_REDO}::test_an_entry_has_expired_by_the_log_s_own_time",
    ),
    Mutant(
        "tiered/view/redo.py",
        "        if not len(missing):\n",
        "        if len(missing) < 9:\n",
        f"{_REDO}::test_a_message_that_is_missing_is_never_passed_over",
    ),
    Mutant(
        "tiered/view/redo.py",
        'messages = _rows(messages, headers["queue_offset"] >= state.next)',
        'messages = _rows(messages, headers["queue_offset"] >= 0)',
        f"{_REDO}::test_what_comes_again_from_the_archive_is_applied_once",
    ),
    Mutant(
        "tiered/view/redo.py",
        "held = {key: None if self._cleared(key, changes) else value for key, value in held.items()}",
        "held = dict(held)",
        f"{_REDO}::test_a_topic_made_anew_begins_an_empty_namespace",
    ),
    Mutant(
        "tiered/view/view.py",
        "            if self.progress.physical < end:\n                self.nudge()\n",
        "",
        "tests/scenes/test_kv_serve.py -k redo_looks_often",
    ),
    Mutant(
        "tiered/view/view.py",
        "            waits = self.progress.expected\n",
        "            waits = False\n",
        "tests/scenes/test_kv_serve.py -k redo_looks_often",
    ),
    Mutant(
        "tiered/view/writes.py",
        "0 < len(key) <= MAX_KEY_BYTES",
        "0 < len(key)",
        f"{_WRITES}::test_one_by_one_and_as_columns_say_the_same",
    ),
    Mutant(
        "tiered/view/writes.py",
        "        good = good and (asked is None or asked.good)\n",
        "",
        f"{_WRITES}::test_one_by_one_and_as_columns_say_the_same",
    ),
    Mutant(
        "tiered/codec/record/properties.py",
        "        if name and divider and value:\n            found[name] = value\n    return found\n\n\ndef _behind",
        "        if name and divider:\n            found[name] = value\n    return found\n\n\ndef _behind",
        f"{_WRITES}::test_properties_of_one_message_are_those_of_a_batch",
    ),
    Mutant(
        "tiered/source/reading.py",
        "self.stored.vouched(start + first) and not lacks_its_end(data):",
        "self.stored.vouched(start + first):",
        f"{_SOURCE}::test_an_answer_does_not_make_half_a_record_whole",
    ),
    Mutant(
        "tiered/source/tail.py",
        "        return place == self._now\n",
        "        return self._now >= 0\n",
        f"{_SOURCE}::test_the_last_record_counts_at_once_if_its_broker_answered_for_it",
    ),
    Mutant(
        "tiered/source/tail.py",
        "        self._believed = False\n",
        "        pass\n",
        f"{_SOURCE}::test_a_broker_whose_answers_come_before_its_bytes_is_not_believed_again",
    ),
    Mutant(
        "tiered/daemon/keyvalue.py",
        "None if elsewhere else live",
        "live",
        "tests/scenes/test_kv_process.py::test_a_write_that_the_broker_beside_it_answered_for_is_not_looked_at_twice",
    ),
    Mutant(
        "tiered/view/putting.py",
        "            with self._progress.expecting():\n                self._stored(place)\n",
        "            self._stored(place)\n            with self._progress.expecting():\n",
        "tests/unit/test_kv_putting.py::test_a_write_is_answered_with_what_redo_decided",
    ),
    Mutant(
        "tiered/view/operation.py",
        "plain if unpacker.eof and len(plain) <= most else None",
        "plain if unpacker.eof else None",
        f"{_REDO}::test_bodies_that_a_producer_compressed",
    ),
    Mutant(
        "tiered/view/progress.py",
        "if found is None or found[0] != unique_key:",
        "if found is None:",
        f"{_PUT}::test_another_message_in_the_write_s_place_is_not_taken_for_it",
    ),
    Mutant(
        "tiered/view/progress.py",
        "    if version in done.judged.get(namespace, ()):\n",
        "    if version >= 0:\n",
        f"{_PUT}::test_only_what_redo_decided_is_an_outcome",
    ),
    Mutant(
        "tiered/view/view.py",
        "        self.progress.begin_anew()  # before the store is empty\n        self._redo.forget()\n",
        "        self._redo.forget()\n        self.progress.begin_anew()\n",
        f"{_FEED}::test_a_view_that_is_not_whole_says_not_now",
    ),
    Mutant(
        "tiered/view/view.py",
        "        self.progress.goes_back()  # before the store does: nobody may take what is not there again for *not there*\n",
        "",
        f"{_FEED}::test_a_view_that_is_not_whole_says_not_now",
    ),
    Mutant(
        "tiered/view/view.py",
        "        if self.progress.life != life:\n",
        "        if life < 0:\n",
        f"{_FEED}::test_a_read_that_met_a_store_being_made_is_not_answered",
    ),
    Mutant(
        "tiered/view/view.py",
        "        if lacks is not None and self._in_doubt(namespace, lacks):\n",
        "        if lacks == -1:\n",
        f"{_FEED}::test_a_namespace_that_lies_wholly_in_what_is_gone_is_not_taken_for_none",
    ),
    Mutant(
        "tiered/view/putting.py",
        "        if answer.code != ResponseCode.SUCCESS:\n",
        "        if answer.code is None:\n",
        f"{_PUT}::test_what_is_stored_less_safely_than_it_should_be_is_not_success",
    ),
    Mutant(
        "tiered/view/putting.py",
        'error.fields["outcome"] = NOT_DONE if unsent else UNKNOWN',
        'error.fields["outcome"] = NOT_DONE',
        f"{_PUT}::test_a_connection_that_breaks_leaves_it_unknown",
    ),
    Mutant(
        "tiered/view/putting.py",
        "if self._address is None or client is None or not client.connected:",
        "if self._address is None:",
        f"{_PUT}::test_a_new_connection_goes_to_the_master_of_its_moment",
    ),
    Mutant(
        "tiered/view/putting.py",
        "        with self._connections.asking() as client:\n            return Broker(client).log_end()",
        "        with self._connections.one() as client:\n            return Broker(client).log_end()",
        f"{_PUT}::test_the_log_s_end_is_asked_of_whoever_is_the_master_now",
    ),
    Mutant(
        "tiered/daemon/keyvalue.py",
        "bool(kv.ask_end or kv.namesrv)",
        "bool(kv.ask_end)",
        "tests/scenes/test_kv_serve.py::test_where_the_master_may_change_the_log_beside_a_view_is_not_believed_to_be_all",
    ),
    Mutant(
        "tiered/broker/questions.py",
        'if told.get("master") is False:',
        'if told.get("master") is None:',
        "tests/unit/test_broker_questions.py::test_where_a_master_s_log_ends",
    ),
    Mutant(
        "tiered/feed/archived.py",
        "            return True  # the archive reaches as far as the log was followed, and has fewer\n",
        "            return False\n",
        f"{_FEED}::test_a_topic_made_anew_while_the_view_was_away",
    ),
    Mutant(
        "tiered/feed/live.py",
        "if len(good) == len(everything) and self._chosen(whole).all():",
        "if self._chosen(whole).all():",
        f"{_FEED}::test_where_only_ours_came_before_others_and_damage_are_told_apart_all_the_same",
    ),
    Mutant(
        "tiered/feed/live.py",
        "if len(good) == len(everything) and self._chosen(whole).all():",
        "if len(good) == len(everything):",
        f"{_FEED}::test_where_only_ours_came_before_others_and_damage_are_told_apart_all_the_same",
    ),
    Mutant(
        "tiered/feed/live.py",
        "        if crc32c(found) != anchor.crc32c:\n",
        "        if not found:\n",
        f"{_FEED}::test_a_broker_that_lost_its_tail_has_the_view_made_anew",
    ),
    Mutant(
        "tiered/feed/joined.py",
        "progress.physical_offset < needed:\n",
        "progress.physical_offset < 0:\n",
        f"{_FEED}::test_an_archive_that_has_not_come_so_far_is_waited_for",
    ),
    Mutant(
        "tiered/feed/joined.py",
        "        if parted is not None:\n",
        "        if parted is None:\n            parted = None\n        elif False:\n",
        f"{_FEED}::test_nothing_is_taken_of_an_archived_tail_that_the_broker_lost",
    ),
    Mutant(
        "tiered/view/sweeping.py",
        "before_ms = newest_ms - SKEW_MS",
        "before_ms = newest_ms",
        f"{_FEED}::test_what_expired_long_ago_is_removed_from_the_store",
    ),
)
