"""Sinks: what is given, where they go on, what becomes part of the archive, what retention leaves."""

from __future__ import annotations

from tests.mutants import Mutant

_RUN = "tests/scenes/test_sink_running.py"
_FOLD = "tests/unit/test_fold_sinks.py"
_MAP = "tests/property/test_sink_offset_map.py"
_MAPPING = "tests/scenes/test_sink_mapping.py"
_BACKFILL = "tests/scenes/test_sink_backfill.py"
_RETAIN = "tests/property/test_retention_histories.py::test_what_a_required_sink_was_not_given_stays"

MUTANTS = (
    Mutant(
        "tiered/sink/openedsink.py",
        "        if at_end and now - self.flushed_at >= pace.flush_seconds:\n",
        "        if at_end:\n",
        "tests/unit/test_sink_pace.py::test_where_nothing_more_is_to_be_written_only_flushes_in_a_row_wait",
    ),
    Mutant(
        "tiered/sink/running.py",
        "monotonic(), at_end=True):",
        "monotonic()):",
        f"{_RUN}::test_what_is_given_at_the_end_of_the_log_is_flushed_at_once",
    ),
    Mutant(
        "tiered/sink/bodies.py",
        "        if source.tell() != len(body):\n",
        "        if False:\n",
        "tests/unit/test_sink_bodies.py::test_avro_becomes_json",
    ),
    Mutant(
        "tiered/sink/bodies.py",
        "        if found.ByteSize() != size:\n",
        "        if False:\n",
        "tests/unit/test_sink_bodies.py::test_protobuf_becomes_json_and_what_the_message_does_not_have_is_a_misfit",
    ),
    Mutant(
        "tiered/sink/fitting.py",
        "    if misfits is None:\n",
        "    if False:\n",
        "tests/unit/test_sink_bodies.py::test_a_body_that_does_not_fit_stops_the_sink_or_lies_with_the_dead_letters",
    ),
    Mutant(
        "tiered/sink/running.py",
        "        made.unheard = not afresh and known is not None and tells_apart(known, fold)\n",
        "        made.unheard = False\n",
        f"{_RUN}::test_a_lost_tail_is_told_once_whenever_the_daemon_is_killed",
    ),
    Mutant(
        "tiered/sink/ledger.py",
        "            advance = replace(advance, looked=known.looked, lineage=known.lineage)\n",
        "",
        f"{_RUN}::test_a_loss_that_does_not_fit_one_commit_is_accounted_for_all_the_same",
    ),
    Mutant(
        "tiered/sink/running.py",
        "            opened.mark([",
        "            ([",
        f"{_RUN}::test_a_lost_tail_is_told_once_whenever_the_daemon_is_killed",
    ),
    Mutant(
        "tiered/daemon/sinks.py",
        "            self._clock.monotonic() - self._looked,\n",
        "            0.0,\n",
        "tests/scenes/test_sink_figures.py::test_a_sink_and_what_holds_for_all_are_shown",
    ),
    Mutant(
        "tiered/sink/shaping.py",
        "left_out=left_out)\n        accepted",
        "left_out=0)\n        accepted",
        "tests/unit/test_sink_shaping.py::test_tags_and_sql_let_pass_what_has_both",
    ),
    Mutant(
        "tiered/sink/choosing.py",
        "                if follow.physical is not None and physical[first] > follow.physical:\n",
        "                if False:\n",
        f"{_RUN}::test_a_topic_that_was_deleted_and_made_again",
    ),
    Mutant(
        "tiered/sink/choosing.py",
        "            for gap in np.flatnonzero(offsets[first:end] > before).tolist():\n",
        "            for gap in []:\n",
        f"{_RUN}::test_messages_that_are_missing_are_counted_and_never_passed_over_in_silence",
    ),
    Mutant(
        "tiered/sink/reconciling.py",
        "part.closed_by <= looked or",
        "part.closed_by > looked or",
        f"{_RUN}::test_a_tail_that_the_broker_lost_after_it_was_replicated_is_said",
    ),
    Mutant(
        "tiered/sink/reconciling.py",
        "    log = FeedPosition() if cut or rewound else _log(position.log, lineage, head)\n",
        "    log = _log(position.log, lineage, head)\n",
        f"{_RUN}::test_a_tail_that_the_broker_lost_after_it_was_replicated_is_said",
    ),
    Mutant(
        "tiered/sink/proven.py",
        "        if start >= limit:\n            return idle(start)\n",
        "        limit = start + max_bytes\n",
        f"{_RUN}::test_the_live_log_as_far_as_it_is_archived",
    ),
    Mutant(
        "tiered/sink/running.py",
        "            if known is None or known.revision != stored.revision:\n",
        "            if False:\n",
        f"{_RUN}::test_topics_are_chosen_and_what_is_included_later_comes_from_its_beginning",
    ),
    Mutant(
        "tiered/sink/running.py",
        "        self.progress.enter(*self._standing)\n        with",
        "        self.progress.enter(SinkPhase.OPENING)\n        with",
        f"{_RUN}::test_it_stands_still_while_it_is_opened_again",
    ),
    Mutant(
        "tiered/sink/running.py",
        "        if opened.took:\n            self._enter(phase, why)\n",
        "        if True:\n            self._enter(phase, why)\n",
        f"{_RUN}::test_a_destination_that_opens_and_then_refuses_goes_on_with_its_first_flush",
    ),
    Mutant(
        "tiered/sink/reconciling.py",
        "    if any(follow.next > 0 for follow in recorded.queues.values()):\n",
        "    if False:\n",
        f"{_RUN}::test_a_destination_that_forgot_its_position_stops_the_sink_until_it_is_told_where_to_begin",
    ),
    Mutant(
        "tiered/sink/ledger.py",
        "            if there != SinkQueue(follow.next, follow.physical)\n",
        "            if there is None\n",
        f"{_RUN}::test_the_archive_knows_how_far_it_is_and_the_next_process_goes_on_there",
    ),
    Mutant(
        "tiered/archive/fold/sinkprogress.py",
        "        fold.check(now >= reached, rule,",
        "        fold.check(True, rule,",
        f"{_FOLD}::test_what_is_refused",
    ),
    Mutant(
        "tiered/archive/fold/logedits.py",
        "LASTING_FEATURES = (LITE_QUEUES, FORGOTTEN_QUEUES, SINKS, SINK_MAPS, DICTIONARIES)\n",
        "LASTING_FEATURES = (LITE_QUEUES, FORGOTTEN_QUEUES, SINK_MAPS, DICTIONARIES)\n",
        f"{_FOLD}::test_the_first_of_them_makes_the_feature_required_and_later_epochs_keep_it",
    ),
    Mutant(
        "tiered/archive/fold/sinkmap.py",
        "            fold.unmapped.add(key)\n",
        "            pass\n",
        f"{_FOLD}::test_what_is_refused_of_a_map",
    ),
    Mutant(
        "tiered/archive/fold/sinkmap.py",
        "            fold.draft.put(key, pack_map(known.cut(following)))\n",
        "            pass\n",
        f"{_FOLD}::test_a_map_is_cut_where_its_sink_goes_back_and_goes_with_it",
    ),
    Mutant(
        "tiered/archive/state/offsetmap.py",
        "        kept = self.cut(later.start)\n",
        "        kept = self\n",
        f"{_MAP}::test_what_is_learned_twice_is_known_once",
    ),
    Mutant(
        "tiered/archive/state/offsetmap.py",
        "        kept = kept._ending(begins)\n",
        "        if len(kept) and begins < kept.target_ends[-1]:\n            return later\n",
        f"{_MAP}::test_nothing_is_lost_at_what_it_says",
    ),
    Mutant(
        "tiered/sink/mapping.py",
        "    found = sink.placed_between(unmapped)\n",
        "    found = dict.fromkeys(unmapped, ())\n",
        f"{_MAPPING}::test_killed_between_the_destination_and_the_archive",
    ),
    Mutant(
        "tiered/sink/mapping.py",
        "            made[queue] = nothing_given(gap.end, gap.end)\n",
        "            made[queue] = nothing_given(gap.first or 0, gap.end)\n",
        f"{_MAPPING}::test_what_cannot_be_found_again_is_said_and_the_map_begins_behind_it",
    ),
    Mutant(
        "tiered/sink/ledger.py",
        "maps[queue].then(told) if queue in maps else told",
        "told",
        f"{_MAPPING}::test_flushes_that_wait_for_a_commit_come_together",
    ),
    Mutant(
        "tiered/archive/rewrite/cutting.py",
        '    free &= ~live | (items["end"] <= judged.given[row])\n',
        "",
        _RETAIN,
    ),
    Mutant(
        "tiered/sink/reconciling.py",
        "            more[queue] = first.get(queue, Follow())\n",
        "            pass\n",
        f"{_RUN}::test_a_topic_that_begins_while_a_sink_that_began_with_now_is_paused_is_given",
    ),
    Mutant(
        "tiered/sink/running.py",
        " or taken is not None\n",
        "\n",
        f"{_BACKFILL}::test_a_topic_that_begins_meanwhile_is_given_to_a_sink_that_began_with_now",
    ),
    Mutant(
        "tiered/sink/held.py",
        "        self._progress.given_elsewhere(done.values())\n",
        "",
        f"{_BACKFILL}::test_what_others_left_out_or_did_not_find_is_told_of_the_sink",
    ),
    Mutant(
        "tiered/sink/held.py",
        "            if not _has_joined(own, follows, firsts):\n",
        "            if True:\n",
        f"{_BACKFILL}::test_a_process_that_ends_between_the_destination_and_the_archive",
    ),
    Mutant(
        "tiered/daemon/sinkfile.py",
        "        if stamp is not None and stamp == self._done:\n            return\n",
        "",
        "tests/unit/test_sink_declared.py::test_the_daemon_follows_its_file",
    ),
    Mutant(
        "tiered/sink/declared.py",
        "        if change.differs and (not change.new or change.paused):\n",
        "        if not change.new or change.paused:\n",
        "tests/unit/test_sink_declared.py::test_what_is_declared_is_put_once",
    ),
    Mutant(
        "tiered/feed/inorder.py",
        "    last = min(head.last for head in heads)\n",
        "    last = max(head.last for head in heads)\n",
        "tests/scenes/test_sink_order.py::test_the_archive_and_then_the_log_come_in_the_order_of_the_log",
    ),
    Mutant(
        "tiered/feed/inorder.py",
        "    beyond = sum(max(0, each - even) for each in held)\n",
        "    beyond = 0\n",
        "tests/scenes/test_sink_order.py::test_every_queue_has_its_share_and_those_that_need_more_get_it",
    ),
    Mutant(
        "tiered/feed/inorder.py",
        "        stretch = _alone(stretch)\n",
        "",
        "tests/scenes/test_sink_order.py::test_what_is_held_is_bounded_and_larger_blocks_are_read_in_pieces",
    ),
    Mutant(
        "tiered/feed/inorder.py",
        "        self.next = int(stretch.next_offset)\n",
        "        self.next = run.end\n",
        "tests/scenes/test_sink_order.py::test_what_is_held_is_bounded_and_larger_blocks_are_read_in_pieces",
    ),
    Mutant(
        "tiered/feed/archived.py",
        "            if head.next < head.queue.file.max_offset:\n",
        "            if False:\n",
        "tests/scenes/test_sink_running.py::test_the_end_of_a_queue_that_retention_took_is_said_though_no_message_follows",
    ),
    Mutant(
        "tiered/sink/choosing.py",
        "            self._move(passed.queue, Follow(passed.end, follow.physical))\n",
        "",
        "tests/scenes/test_sink_running.py::test_the_end_of_a_queue_that_retention_took_is_said_though_no_message_follows",
    ),
    Mutant(
        "tiered/view/redo.py",
        "        if batch.passed is not None:\n",
        "        if False:\n",
        "tests/scenes/test_kv_feed.py::test_a_namespace_of_which_retention_took_what_is_missing_is_not_served_though_nothing_follows",
    ),
    Mutant(
        "tiered/feed/inorder.py",
        '    order = np.argsort(np.concatenate([places for _, places in parts]), kind="stable")\n',
        '    order = np.argsort(np.concatenate([places for _, places in parts]), kind="stable")[::-1]\n',
        "tests/scenes/test_sink_order.py::test_the_archive_and_then_the_log_come_in_the_order_of_the_log",
    ),
    Mutant(
        "tiered/sink/running.py",
        "        if rest > 0:\n",
        "        if False:\n",
        "tests/scenes/test_sink_running.py::test_the_archive_is_given_at_a_rate_and_the_log_is_not",
    ),
    Mutant(
        "tiered/sink/kinds.py",
        "        if options.get(name) != order.options.get(name):\n",
        "        if False:\n",
        "tests/scenes/test_cli_sink.py::test_options_are_changed_while_it_goes_on",
    ),
    Mutant(
        "tiered/sink/running.py",
        "        self.close()\n        self._stored = self._wanted\n",
        "        self._stored = self._wanted\n",
        "tests/scenes/test_sink_running.py::test_other_options_are_those_it_is_opened_with",
    ),
    Mutant(
        "tiered/sink/backfill.py",
        '_id(plan.plan_id, f"job {number + 1}")',
        '_id(plan.plan_id, f"job {number + 2}")',
        "tests/unit/test_sink_backfill_book.py::test_of_two_jobs_the_later_gives_the_parts",
    ),
    Mutant(
        "tiered/sink/held.py",
        "        if (known.revision, known.looked) != (plan.revision, plan.looked):\n",
        "        if False:\n",
        f"{_BACKFILL}::test_what_does_not_join_stops_it",
    ),
    Mutant(
        "tiered/sink/giving.py",
        "        had = {} if own is None else own.queues\n",
        "        had = {}\n",
        f"{_BACKFILL}::test_it_goes_on_exactly_where_the_backfill_ends",
    ),
    Mutant(
        "tiered/sink/giving.py",
        " or head.lineage != plan.lineage or taken:\n",
        " or head.lineage != plan.lineage:\n",
        f"{_BACKFILL}::test_a_loss_at_the_broker_meanwhile_is_accounted_for",
    ),
    Mutant(
        "tiered/sink/book.py",
        "return self.order.required or self.under_way is not None",
        "return self.order.required",
        "tests/unit/test_sink_backfill_book.py::test_retention_waits_while_a_history_is_given",
    ),
    Mutant(
        "tiered/daemon/sinks.py",
        "        if all(reached.get(",
        "        if True or all(reached.get(",
        "tests/scenes/test_sink_figures.py::test_what_a_backfill_left_goes_once_the_archive_has_it",
    ),
    Mutant(
        "tiered/sink/reconciling.py",
        "    anew += _reborn(follows, looked, frozenset(anew), state)\n",
        "",
        "tests/scenes/test_sink_verify.py::test_what_the_broker_lost_and_what_came_in_its_place_are_no_doubles",
    ),
    Mutant(
        "tiered/sink/file/manifest.py",
        '            if there not in ("", expected):\n',
        '            if there not in ("", expected) and whose == "archive":\n',
        "tests/contract/test_sink_file.py::test_another_archive_and_a_later_writer_are_told_apart",
    ),
    Mutant(
        "tiered/sink/kafka/records.py",
        "    return headers.get(SINK, sink.encode()) != sink.encode()\n",
        "    return False\n",
        "tests/unit/test_sink_kafka.py::test_a_record_says_which_sink_gave_it",
    ),
    Mutant(
        "tiered/sink/comparison/comparing.py",
        "            others = marks.origin == ANOTHER_SINKS\n",
        "            others = marks.origin < ANOTHER_SINKS\n",
        "tests/unit/test_sink_comparison.py::test_another_sinks_messages_are_counted_and_nothing_else",
    ),
)
