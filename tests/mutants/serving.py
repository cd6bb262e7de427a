"""What clients of a broker are answered, and what is sent to them again."""

from __future__ import annotations

from tests.mutants import Mutant

_GATEWAY_PULL = "tests/unit/test_gateway_pull.py"
_GATEWAY_RECHECK = "tests/unit/test_gateway_recheck.py"
_GATEWAY_PARTS = "tests/unit/test_gateway_parts.py"
_GATEWAY_HTTP_LIMITS = "tests/unit/test_gateway_http_limits.py"
_HTTP_CONNECTION = "tests/unit/test_http_connection.py"
_WEB = "tests/unit/test_web.py"
_GATEWAY_BOUNDS = "tests/integration/test_gateway_bounds.py"
_REPLAY_LEDGER = "tests/unit/test_replay_ledger.py"
_REPLAY_DRAIN = "tests/unit/test_replay_drain.py"
_REPLAY_RULE = "tests/unit/test_replay_rule.py"

MUTANTS = (
    Mutant(
        "tiered/gateway/pull/cold.py",
        '                raise Unavailable("it cannot be seen whether messages are missing",'
        " cause=error) from error\n",
        "                pass\n",
        (
            "tests/unit/test_gateway_missing.py::TestFiltersThatCannotBeRun"
            "::test_what_they_may_hide_is_waited_for_until_the_broker_is_calm"
        ),
    ),
    Mutant(
        "tiered/gateway/pull/cold.py",
        "        if result.max_offset > bounds.max_offset >= 0:\n            if why in",
        "        if False:\n            if why in",
        "tests/unit/test_gateway_gaps.py::test_an_archive_that_went_on_since_the_answer_is_no_queue_that_began_anew",
    ),
    Mutant(
        "tiered/gateway/pull/cold.py",
        "        return min(pull.max_bytes or self._max_bytes, self._max_bytes)\n",
        "        return pull.max_bytes or self._max_bytes\n",
        f"{_GATEWAY_PULL}::TestLimits::test_huge_wishes_meet_the_settings",
    ),
    Mutant(
        "tiered/gateway/pull/cold.py",
        "            if end is not None:\n                # The archive",
        "            if True:\n                # The archive",
        f"{_GATEWAY_PULL}::test_hand_over_from_cold_to_hot_has_no_gap_and_no_repeat_while_the_minimum_moves",
    ),
    Mutant(
        "tiered/gateway/transport/limits.py",
        "        if len(self._waiting) or self.taken + size > self._most:\n",
        "        if False:\n",
        f"{_GATEWAY_PARTS}::test_a_budget_is_first_come_first_served",
    ),
    Mutant(
        "tiered/gateway/transport/limits.py",
        "        if taken is not None:\n",
        "        if taken:\n",
        f"{_GATEWAY_PARTS}::test_what_needs_no_room_never_waits_for_room_that_is_there",
    ),
    Mutant(
        "tiered/gateway/transport/limits.py",
        "            else:\n                self.give_back(size)\n            raise\n",
        "            raise\n",
        f"{_GATEWAY_PARTS}::test_a_taker_that_is_cancelled_at_the_last_moment_loses_nothing",
    ),
    Mutant(
        "tiered/gateway/transport/frames.py",
        "        if not 4 <= length <= self._max - LENGTH_BYTES:\n",
        "        if not 4 <= length:\n",
        "tests/property/test_gateway_frames.py::test_what_is_no_frame_is_known_at_once",
    ),
    Mutant(
        "tiered/http/heads.py",
        '    if skipped + len(head) + 2 > MAX_HEAD_BYTES or head.count(b"\\n") > MAX_HEADERS + 1:\n',
        "    if False:\n",
        f"{_GATEWAY_HTTP_LIMITS}::test_heads_that_are_not_plainly_right_end_the_connection",
    ),
    Mutant(
        "tiered/http/bodies.py",
        '    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"\n',
        "    return False\n",
        f"{_GATEWAY_HTTP_LIMITS}::test_heads_that_are_not_plainly_right_end_the_connection",
    ),
    Mutant(
        "tiered/http/app.py",
        "is_last=lambda: has_unread_body(scope) or connection.is_last_request",
        "is_last=lambda: connection.is_last_request",
        f"{_HTTP_CONNECTION}::test_the_answer_to_a_request_with_a_body_is_the_last_whatever_it_is",
    ),
    Mutant(
        "tiered/http/connection.py",
        "        self._skipped += empty\n",
        "",
        f"{_HTTP_CONNECTION}::test_empty_lines_are_bytes_of_a_head",
    ),
    Mutant(
        "tiered/http/heads.py",
        "    if (_LENIENT_STRAY_END if lenient else _STRAY_END).search(head):\n",
        "    if False:\n",
        f"{_GATEWAY_HTTP_LIMITS}::test_heads_that_are_not_plainly_right_end_the_connection",
    ),
    Mutant(
        "tiered/http/connection.py",
        "            self._head_timer = self.loop.call_later(seconds, late)\n",
        "            pass\n",
        f"{_HTTP_CONNECTION}::test_a_drop_at_a_time_does_not_buy_time",
    ),
    Mutant(
        "tiered/http/connection.py",
        "        full = len(self.connections) >= limits.connections\n",
        "        full = False\n",
        f"{_HTTP_CONNECTION}::test_turned_away_connections_take_no_place",
    ),
    Mutant(
        "tiered/http/connection.py",
        "        self._stalled = self.loop.call_later(self._door.limits.send_seconds, self.cut)\n",
        "",
        f"{_GATEWAY_HTTP_LIMITS}::test_a_client_that_does_not_read_is_cut",
    ),
    Mutant(
        "tiered/http/connection.py",
        "        return not self._lingering.is_closing()\n",
        "        return None\n",
        f"{_HTTP_CONNECTION}::test_a_client_that_closed_its_sending_side_gets_every_answer",
    ),
    Mutant(
        "tiered/http/health.py",
        "        future.set_running_or_notify_cancel()",
        "        pass",
        f"{_WEB}::test_pages_that_hang_take_no_more_threads_than_they_may",
    ),
    Mutant(
        "tiered/http/app.py",
        '    scope["path"] = sent_path(path)\n',
        '    scope["path"] = path.decode("latin-1")\n',
        f"{_HTTP_CONNECTION}::test_escapes_are_the_same_address_and_no_way_round_the_token",
    ),
    Mutant(
        "tiered/gateway/transport/pending.py",
        "            if request.opaque in self._by_opaque:\n",
        "            if False:\n",
        f"{_GATEWAY_PARTS}::test_an_opaque_waits_for_one_answer_only",
    ),
    Mutant(
        "tiered/gateway/answers/answers.py",
        "            return HELD[Why.SKIP] if _is_skip(answer) else PASS\n",
        "            return PASS\n",
        f"{_GATEWAY_PULL}::TestBadInput::test_a_request_that_only_the_broker_understands_is_never_led_over_messages",
    ),
    Mutant(
        "tiered/gateway/pull/cold.py",
        '            raise Unavailable("a pull cannot be answered", cause=error) from error\n',
        "            raise\n",
        f"{_GATEWAY_PULL}::TestBadInput::test_a_request_that_only_the_broker_understands_is_never_led_over_messages",
    ),
    Mutant(
        "tiered/gateway/pull/recheck.py",
        "        if self._clock.monotonic() - said.since >= self._seconds:\n",
        "        if False:\n",
        f"{_GATEWAY_RECHECK}::test_what_the_broker_said_stands_for_a_second_however_often_it_is_used",
    ),
    Mutant(
        "tiered/gateway/pull/recheck.py",
        "                said.replaced = replaced\n",
        "                said.replaced = True\n",
        f"{_GATEWAY_RECHECK}::test_after_the_archive_had_nothing_the_broker_is_asked",
    ),
    Mutant(
        "tiered/gateway/pull/recheck.py",
        "        if not 0 <= offset < deep:\n",
        "        if not 0 <= offset < said.begin:\n",
        f"{_GATEWAY_RECHECK}::test_near_the_border_every_pull_goes_to_the_broker",
    ),
    Mutant(
        "tiered/gateway/transport/session.py",
        "        if held.verdict is NEED_BODY:\n",
        "        if not held.is_notice:\n",
        "tests/integration/test_gateway_whole.py::test_what_is_held_by_its_first_bytes_is_not_judged_again",
    ),
    Mutant(
        "tiered/gateway/pull/verdict.py",
        "        if len(body) <= PEEK_BYTES:\n            return HELD[Why.DOUBT]",
        "        if len(body) <= PEEK_BYTES:\n            return PASS",
        "tests/unit/test_gateway_gaps.py::test_an_answer_too_short_for_a_record_is_in_doubt",
    ),
    Mutant(
        "tiered/gateway/pull/gaps.py",
        "            if at != expected:\n",
        "            if at < expected:\n",
        "tests/unit/test_gateway_gaps.py::test_every_offset_needs_its_record",
    ),
    Mutant(
        "tiered/gateway/pull/gaps.py",
        "    return position == len(body)\n",
        "    return position > 0\n",
        "tests/unit/test_gateway_gaps.py::test_every_offset_needs_its_record",
    ),
    Mutant(
        "tiered/gateway/transport/session.py",
        '                aside = await budget.take(settings.max_pull_bytes, asked.get("topic", ""), group)\n',
        "",
        f"{_GATEWAY_BOUNDS}::test_answers_of_all_connections_share_one_budget",
    ),
    Mutant(
        "tiered/gateway/transport/session.py",
        "        if self.ready or self.closed:\n            self.shared.budget.give_back(aside)\n",
        "        if self.closed:\n            self.shared.budget.give_back(aside)\n",
        f"{_GATEWAY_BOUNDS}::test_answers_of_all_connections_share_one_budget",
    ),
    Mutant(
        "tiered/replay/ledgerfile.py",
        "            os.fdatasync(self._descriptor)\n",
        "            pass\n",
        f"{_REPLAY_LEDGER}::test_each_record_is_synced_before_it_counts",
    ),
    Mutant(
        "tiered/replay/ledgerfile.py",
        "            if scanned.torn or scanned.end == 0:\n                os.ftruncate(descriptor, scanned.end)\n",
        "",
        f"{_REPLAY_LEDGER}::test_a_torn_first_record_is_no_damage",
    ),
    Mutant(
        "tiered/replay/ledger.py",
        "        except OSError as error:\n"
        "            raise _disk(self._directory, error) from error\n"
        "        apply(self._books, kind, fields)\n",
        "        except OSError as error:\n"
        "            apply(self._books, kind, fields)\n"
        "            raise _disk(self._directory, error) from error\n"
        "        apply(self._books, kind, fields)\n",
        f"{_REPLAY_LEDGER}::test_a_disk_that_refuses_leaves_the_books_as_they_were",
    ),
    Mutant(
        "tiered/replay/drain.py",
        "            if window.open and self._troubles",
        "            if self._troubles",
        f"{_REPLAY_DRAIN}::test_the_window_of_messages",
    ),
    Mutant(
        "tiered/replay/drain.py",
        "        drained = batch.end if left is None else left\n",
        "        drained = batch.end\n",
        f"{_REPLAY_DRAIN}::test_a_busy_or_full_broker_is_left_alone_and_nothing_is_lost",
    ),
    Mutant(
        "tiered/replay/drain.py",
        "            outcome.unanswered = True\n",
        "            outcome.stored.add(offset)\n",
        f"{_REPLAY_DRAIN}::test_an_answer_that_never_comes_is_sent_again",
    ),
    Mutant(
        "tiered/replay/window.py",
        "        self.messages = max(0, self._most_messages - ahead)\n",
        "        self.messages = self._most_messages\n",
        f"{_REPLAY_DRAIN}::test_the_window_of_messages",
    ),
    Mutant(
        "tiered/replay/rule.py",
        "    if known is None or reported < known.reported:\n",
        "    if known is None:\n",
        f"{_REPLAY_RULE}::test_a_reset_by_an_operator_wants_everything_from_there",
    ),
    Mutant(
        "tiered/replay/rule.py",
        "        base = max(known.covered, aged or 0)\n",
        "        base = max(known.covered, reported)\n",
        f"{_REPLAY_RULE}::test_a_group_that_reads_in_time_is_owed_nothing",
    ),
    Mutant(
        "tiered/replay/ledgerfile.py",
        "    return payload if crc32c(payload) == expected else None\n",
        "    return payload\n",
        "tests/unit/test_replay_ledger.py::test_damage_before_the_last_record_is_told",
    ),
    Mutant(
        "tiered/replay/ledgerfile.py",
        "        if number != len(records) + 1:\n",
        "        if False:\n",
        "tests/unit/test_replay_ledger.py::test_damage_before_the_last_record_is_told",
    ),
    Mutant(
        "tiered/replay/ledgerfile.py",
        " and not any(_sound_behind(data, position)):\n",
        ":\n",
        "tests/unit/test_replay_ledger.py::test_damage_before_the_last_record_is_told",
    ),
    Mutant(
        "tiered/replay/drain.py",
        "        at_once, self._at_once = self._at_once, 1\n",
        "        at_once = self._at_once\n",
        "tests/unit/test_replay_faults.py -k sent_one_at_a_time",
    ),
    Mutant(
        "tiered/replay/ledger.py",
        "            durable.sync(self._directory)\n",
        "",
        "tests/fault/test_powercut.py -k ledger",
    ),
    Mutant(
        "tiered/store/lite.py",
        "    if found != alias.physical_offset:\n",
        "    if False:\n",
        "tests/scenes/test_lite_reading.py -k never_given",
    ),
    Mutant(
        "tiered/store/lite.py",
        "        return alias.queue_offset >= kept.minimum(alias.target)\n",
        "        return True\n",
        "tests/scenes/test_lite_reading.py -k retention",
    ),
    Mutant(
        "tiered/store/lite.py",
        "        if alias.offset != found[-1].offset + 1 or not has(alias):\n",
        "        if not has(alias):\n",
        "tests/scenes/test_lite_reading.py -k holes",
    ),
    Mutant(
        "tiered/store/lite.py",
        "        return same and self.queue_offset + 1 == other.queue_offset\n",
        "        return same\n",
        "tests/scenes/test_lite_reading.py -k every_record",
    ),
)
