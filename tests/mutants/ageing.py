"""What retention takes and what it must leave."""

from __future__ import annotations

from tests.mutants import Mutant

_RETENTION = (
    "tests/property/test_retention_histories.py::test_what_is_in_range_stays_and_what_went_never_comes_back"
)
_UNIT = "tests/unit/test_retention.py"
_RETAIN = "tiered/archive/rewrite/retain.py"
_CUTTING = "tiered/archive/rewrite/cutting.py"
_HISTORIES = "tiered/archive/rewrite/histories.py"

_COLLECT = "tiered/archive/rewrite/collect.py"
_COLLECTION = "tiered/archive/rewrite/collection.py"
_COLLECTING = "tests/scenes/test_collection.py"
_DELETION = "tiered/archive/rewrite/deletion.py"
_DELETING = "tests/unit/test_deletion.py"

_LOOKUPS = "tests/scenes/test_store_lookups.py"

_TOPICS = "tests/unit/test_broker_topics.py"
_TOLD = "tests/scenes/test_retention_told.py"

_COMPACTION = "tiered/archive/read/compaction.py"
_COMPACTING = "tests/scenes/test_compaction.py::test_the_newest_message_of_each_key_is_kept_with_its_offset"

_MENDING = "tests/scenes/test_mend.py"
_FORGETTING = "tests/scenes/test_forgetting.py"

_NOTES = "tests/unit/test_topic_notes.py"

MUTANTS = (
    Mutant(
        "tiered/archive/rewrite/forgetting.py",
        "            found.why, found.stuck_queues = WAITS_FOR_A_START, found.over_queues\n",
        "            found.why = WAITS_FOR_A_START\n",
        f"{_FORGETTING}::test_an_epoch_that_does_not_allow_it_waits_for_the_next",
    ),
    Mutant(
        "tiered/archive/rewrite/forgetting.py",
        "                    if not behind.all():\n",
        "                    if False:\n",
        f"{_FORGETTING}::test_a_sink_that_has_to_hear_what_it_lacks_keeps_the_queue",
    ),
    Mutant(
        "tiered/archive/rewrite/forgetting.py",
        "            found.waiting_queues += empty[topic]\n",
        "            pass\n",
        f"{_FORGETTING}::test_what_waits_is_told",
    ),
    Mutant(
        "tiered/daemon/topicnotes.py",
        "        durable.append(self._path, noted.whole, ",
        "        durable.append(self._path, self._path.stat().st_size, ",
        f"{_NOTES}::test_an_end_that_was_never_acknowledged_counts_for_nothing_and_is_written_over",
    ),
    Mutant(
        "tiered/daemon/topicnotes.py",
        "        if not noted.whole or named > 2 * kept + (SPARE if kept else 0):\n",
        "        if not noted.whole:\n",
        f"{_NOTES}::test_topics_that_come_and_go_leave_a_file_that_does_not_grow",
    ),
    Mutant(
        "tiered/daemon/topicnotes.py",
        "    if line[:_CRC_DIGITS] != ",
        "    if not line[:_CRC_DIGITS] and line[:_CRC_DIGITS] != ",
        f"{_NOTES}::test_damage_anywhere_else_lets_every_time_begin_anew",
    ),
    Mutant(
        "tiered/archive/rewrite/retention.py",
        "lambda: kept_topics(state.view), now_ms",
        "lambda: {found.queue.topic for found in state.queues()}, now_ms",
        "tests/scenes/test_churn.py::test_what_topics_leave_behind_does_not_grow",
    ),
    Mutant(
        "tiered/table/progress.py",
        "                found[name] = replace(known, lag_commits=lag)\n",
        "                found[name] = replace(known, lag_commits=lag, since=now)\n",
        "tests/scenes/test_table_orders.py::test_a_table_that_does_not_move_is_told_by_commits_and_by_time",
    ),
    Mutant(
        "tiered/cli/standing.py",
        "        stored = sum(max(length, price.minimum_object_bytes) for length in lengths)\n",
        "        stored = sum(lengths)\n",
        "tests/scenes/test_cli_status.py::test_a_month_by_a_table_of_prices",
    ),
    Mutant(
        "tiered/archive/rewrite/regather.py",
        '        != (run["min_store_time"], run["max_store_time"])\n',
        '        != (rows["store_timestamp"].min(), rows["store_timestamp"].max())\n',
        f"{_MENDING}::test_another_broker_at_the_same_place_is_not_believed",
    ),
    Mutant(
        _COMPACTION,
        "    offsets = np.maximum(stretch.queue_offsets, start)\n",
        "    offsets = stretch.queue_offsets\n",
        "tests/scenes/test_compaction.py::test_a_trim_inside_an_inner_batch_counts_from_there",
    ),
    Mutant(
        "tiered/archive/read/verify.py",
        "    return floor + 1 if floor else 0\n",
        "    return 0\n",
        "tests/scenes/test_removal.py::test_removed_commits_are_no_damage_and_one_above_the_floor_is_still_mended",
    ),
    Mutant(
        "tiered/provider/deleting.py",
        "        if name not in gone and key not in failed:\n",
        "        if False:\n",
        "tests/unit/test_provider_deleting.py::test_only_what_is_said_to_be_gone_is_gone",
    ),
    Mutant(
        _COMPACTION,
        '    ordered = entries[np.lexsort((entries["message"], entries["low"], entries["high"]))]\n',
        '    ordered = entries[np.lexsort((-entries["message"], entries["low"], entries["high"]))]\n',
        _COMPACTING,
    ),
    Mutant(
        _COMPACTION,
        "    found: Ints = newest[(newest & 1) == 1] >> 1\n",
        "    found: Ints = newest >> 1\n",
        _COMPACTING,
    ),
    Mutant(
        _COMPACTION,
        "        self._spill(rest)\n",
        "",
        _COMPACTING,
    ),
    Mutant(
        "tiered/settings/keeping.py",
        '        if self.enabled == "new" and not collected:',
        "        if False:",
        "tests/unit/test_archive_identity.py -k collected_by_default",
    ),
    Mutant(
        "tiered/daemon/maintain.py",
        "        report.complete, report.left = not found.jobs, found.said if found.jobs else None\n",
        "        report.complete = True\n",
        "tests/scenes/test_maintain.py::test_what_a_round_did_not_change_is_left_and_told",
    ),
    Mutant(
        "tiered/daemon/maintain.py",
        "            waiting = [work for work in everything if work.look()]\n",
        "            waiting = [work for work in waiting if work.look()]\n",
        "tests/scenes/test_maintain.py::test_what_a_task_makes_for_one_before_it_is_done_too",
    ),
    Mutant(
        "tiered/daemon/maintain.py",
        "        work.report.tell(\n",
        "        log.info(\n",
        "tests/scenes/test_maintain.py::test_work_without_an_end_is_bounded_and_told",
    ),
    Mutant(
        "tiered/daemon/maintain.py",
        "                report.tell(report.outlook.trouble)\n            return reports\n        try:\n",
        "                pass\n            return reports\n        try:\n",
        "tests/scenes/test_maintain.py::test_what_a_look_cannot_find_out_is_told_though_nothing_is_to_be_done",
    ),
    Mutant(
        "tiered/archive/rewrite/collection.py",
        "    strays = sum(path not in damaged for path in found)\n",
        "    strays = sum(1 for _ in found)\n",
        "tests/scenes/test_scrub.py::test_a_damaged_object_that_no_commit_names_is_not_deleted",
    ),
    Mutant(
        "tiered/daemon/maintain.py",
        "            work.report.complete = False  # nobody looked since\n",
        "            pass\n",
        "tests/scenes/test_maintain.py::test_a_last_look_that_fails_is_an_error_and_one_that_nobody_took_is_no_end",
    ),
    Mutant(
        "tiered/daemon/maintain.py",
        "        except TieredError as error:\n            return cls(",
        "        except ZeroDivisionError as error:\n            return cls(",
        "tests/scenes/test_maintain.py::test_a_task_that_cannot_be_done_keeps_no_other_from_its_work",
    ),
    Mutant(
        "tiered/archive/rewrite/floor.py",
        "        if len(standing) < STANDING and not retired and own.verifies(reader.provider, manifest, spend):\n",
        "        if len(standing) < STANDING and not retired:\n",
        "tests/scenes/test_removal.py::test_a_checkpoint_that_does_not_verify_counts_for_nothing",
    ),
    Mutant(
        "tiered/daemon/saving.py",
        "                turn.commit(_Beat(self._clock.monotonic()))\n",
        "                pass\n",
        "tests/scenes/test_maintain.py::test_the_floor_moves_where_no_daemon_stays",
    ),
    Mutant(
        "tiered/archive/rewrite/floor.py",
        "STANDING = 2\n",
        "STANDING = 1\n",
        "tests/scenes/test_removal.py::test_others_checkpoints_count_for_nothing",
    ),
    Mutant(
        "tiered/archive/rewrite/floor.py",
        "    highest = min(made[1].seq, aged_commit(reader, head, snapshot_retention_ms))\n",
        "    highest = made[1].seq\n",
        "tests/scenes/test_removal.py::test_the_floor_is_a_checkpoint_of_a_day_ago_and_two_stand_above_what_it_gives_up",
    ),
    Mutant(
        "tiered/archive/rewrite/floor.py",
        "        if head is None or head.floor >= self.floor or retired:\n",
        "        if head is None or head.floor >= self.floor:\n",
        "tests/scenes/test_removal.py::test_a_floor_over_a_shard_that_was_retired_meanwhile_settles_to_nothing",
    ),
    Mutant(
        "tiered/archive/rewrite/floor.py",
        "        return None if self.unread is not None else set[str]().union(*self._named.values())\n",
        "        return set[str]().union(*self._named.values())\n",
        "tests/scenes/test_removal.py::test_a_manifest_that_cannot_be_read_keeps_all_shards",
    ),
    Mutant(
        "tiered/archive/rewrite/collect.py",
        "        kept = [p for p in self.paths if p not in needed and self._may_go(p, place.epoch, floor, fold)]\n",
        "        kept = [p for p in self.paths if self._may_go(p, place.epoch, floor, fold)]\n",
        "tests/scenes/test_removal.py::test_shards_are_kept_while_a_kept_checkpoint_names_them_or_this_process_may",
    ),
    Mutant(
        "tiered/archive/rewrite/collect.py",
        "        if self.own_keys.in_hand(path) or fold.is_retired(path):\n",
        "        if fold.is_retired(path):\n",
        "tests/scenes/test_removal.py::test_shards_are_kept_while_a_kept_checkpoint_names_them_or_this_process_may",
    ),
    Mutant(
        "tiered/archive/rewrite/removal.py",
        "min(below, noted[0] + 1), noted[1] | set(state.inline_kept(below)))\n",
        "min(below, noted[0] + 1), set(state.inline_kept(below)))\n",
        "tests/scenes/test_removal.py::test_commits_with_data_that_is_read_stay_and_go_a_grace_after_the_last_reference",
    ),
    Mutant(
        "tiered/archive/rewrite/removal.py",
        "key=lambda i: not past_retention(moves[i][1]))\n",
        "key=lambda i: False)\n",
        "tests/scenes/test_removal.py::test_commits_stay_for_their_retention_after_the_floor_moved",
    ),
    Mutant(
        "tiered/daemon/checkpointer.py",
        "            if head is None or found.epoch != head.epoch - 1:\n",
        "            if head is None:\n",
        "tests/scenes/test_removal.py::test_shards_are_lent_by_the_epoch_just_before_alone",
    ),
    Mutant(
        "tiered/daemon/checkpointer.py",
        "if not fold.is_retired(shard.path))\n",
        "if True)\n",
        "tests/scenes/test_removal.py::test_a_shard_that_was_retired_is_not_lent",
    ),
    Mutant(
        "tiered/daemon/checkpointer.py",
        "            if not {shard.path for shard in saved.shards} <= {*made, *(shard.path for shard in kept)}:\n",
        "            if False:\n",
        "tests/scenes/test_removal.py::test_a_checkpoint_that_somebody_else_put_first_is_not_ours",
    ),
    Mutant(
        "tiered/provider/s3lock.py",
        "    if held or until_ms > date_ms:\n",
        "    if held:\n",
        "tests/contract/test_provider_object_lock.py::test_what_is_locked_stays_until_its_date_and_then_goes_with_its_bytes",
    ),
    Mutant(
        "tiered/provider/s3lock.py",
        '    if found != "Enabled":\n',
        "    if not found:\n",
        "tests/contract/test_provider_object_lock.py::test_a_bucket_that_does_not_lock_is_refused_before_anything_is_put",
    ),
    Mutant(
        _COLLECTION,
        "        return key not in self._failed and self._locked_until_ms.get(key, 0) <= self._clock.now_ms()\n",
        "        return key not in self._failed\n",
        f"{_COLLECTING}::test_what_the_store_itself_keeps_is_told_once_and_asked_for_again_after_its_date",
    ),
    Mutant(
        "tiered/source/topics.py",
        "                _has_entries(os.path.join(self.store_dir, kind, topic)) for kind in _QUEUE_DIRECTORIES\n",
        "                False for kind in _QUEUE_DIRECTORIES\n",
        f"{_TOPICS}::test_a_topic_counts_as_deleted_only_without_its_queues",
    ),
    Mutant(
        "tiered/source/topics.py",
        "        if gone and not os.path.isdir(config):\n",
        "        if False:\n",
        f"{_TOPICS}::test_a_store_that_goes_away_behind_its_list_has_deleted_nothing",
    ),
    Mutant(
        "tiered/source/topics.py",
        "        if attributes is None or (place is None and not len(attributes)):\n",
        "        if attributes is None:\n",
        f"{_TOPICS}::test_a_list_that_is_not_whole_is_no_reason_to_trim",
    ),
    Mutant(
        "tiered/daemon/brokertopics.py",
        "        if not self._notes or self._file is None:\n",
        "        if self._file is None:\n",
        f"{_TOPICS}::test_only_what_was_compared_with_the_broker_notes_and_notes_are_of_one_archive",
    ),
    Mutant(
        "tiered/daemon/brokertopics.py",
        "            if policy_from(settings).forever and not settings.deleted_topic_ms:\n",
        "            if True:\n",
        f"{_TOPICS}::test_a_list_that_is_not_whole_is_no_reason_to_trim",
    ),
    Mutant(
        "tiered/archive/rewrite/policy.py",
        "        return topic in self.broker.expired and (own is None or not own.forever)\n",
        "        return topic in self.broker.expired\n",
        f"{_TOLD}::test_a_topic_that_is_gone_is_trimmed_whole_but_for_what_is_young_and_comes_back_as_a_new_generation",
    ),
    Mutant(
        "tiered/store/follower.py",
        "                gone.met(error)\n            self.follow(force=True)\n",
        "                gone.met(error)\n            self.follow()\n",
        f"{_LOOKUPS}::test_an_object_that_is_still_named_is_damage_and_a_log_that_is_away_is_unavailable",
    ),
    Mutant(
        "tiered/store/gone.py",
        "        if self._met[key] > LOOKS:\n",
        "        if self._met[key] > 0:\n",
        f"{_LOOKUPS}::test_a_view_older_than_a_deletion_looks_again_by_itself",
    ),
    Mutant(
        _COLLECT,
        "            elif made.epoch < epoch and ahead_of_log(provider, keys, state, stored) is None:\n",
        "            elif ahead_of_log(provider, keys, state, stored) is None:\n",
        f"{_COLLECTING}::test_orphans_are_those_of_earlier_epochs_that_no_commit_knows",
    ),
    Mutant(
        _COLLECT,
        "            elif made.epoch < epoch and ahead_of_log(provider, keys, state, stored) is None:\n",
        "            elif made.epoch < epoch:\n",
        f"{_COLLECTING}::test_what_is_all_that_is_left_of_records_is_no_orphan",
    ),
    Mutant(
        _COLLECT,
        "        kept = [p for p in self.paths if p not in needed and self._may_go(p, place.epoch, floor, fold)]\n",
        "        kept = list(self.paths)\n",
        f"{_COLLECTING}::test_what_changed_before_its_place_came_is_left_out",
    ),
    Mutant(
        _DELETION,
        "                pieces += [piece[half:], piece[:half]]\n                continue\n",
        "                pass\n",
        f"{_DELETING}::test_a_key_that_fails_the_request_for_all_is_found_and_holds_back_only_itself",
    ),
    Mutant(
        _DELETION,
        "        together = [key for key in keys if key not in self._alone]\n",
        "        together = list(keys)\n",
        f"{_DELETING}::test_a_key_that_fails_the_request_for_all_is_found_and_holds_back_only_itself",
    ),
    Mutant(
        _DELETION,
        "            divided = self._left > 0\n",
        "            divided = True\n",
        f"{_DELETING}::test_a_store_that_deletes_nothing_is_asked_a_few_times_and_not_for_each_key",
    ),
    Mutant(
        _DELETION,
        "        self._at_once = max(1, self._at_once // 2) if patience.over",
        "        self._at_once = self._at_once if patience.over",
        f"{_DELETING}::test_keys_over_which_a_store_breaks_down_hold_back_the_others_for_some_rounds_at_most",
    ),
    Mutant(
        _COLLECTION,
        "        return self._ages_ms[seq] >= age_ms\n",
        "        return True\n",
        f"{_COLLECTING}::test_what_a_merge_left_is_named_kept_for_a_grace_and_then_deleted",
    ),
    Mutant(
        _COLLECTION,
        "                self._ages_ms[seq] = _EVER_MS if seq < self._floor else -1\n",
        "                self._ages_ms[seq] = _EVER_MS\n",
        f"{_COLLECTING}::test_a_commit_that_is_gone_leaves_what_it_named",
    ),
    Mutant(
        _COLLECTION,
        "            turn.commit(SayDeleted(gone, self._clock.monotonic()))\n",
        "            turn.commit(SayDeleted(paths, self._clock.monotonic()))\n",
        f"{_COLLECTING}::test_deletes_that_fail_are_told_and_done_again",
    ),
    Mutant(
        _COLLECTION,
        "                self._named[path] = True\n",
        "                pass\n",
        f"{_COLLECTING}::test_orphans_are_those_of_earlier_epochs_that_no_commit_knows",
    ),
    Mutant(
        _COLLECTION,
        "                agreed_now(self._clock.now_ms(), found.date_ms)\n",
        "                pass\n",
        f"{_COLLECTING}::test_without_a_clock_with_clocks_apart_or_promises_broken_nothing_is_deleted",
    ),
    Mutant(
        _CUTTING,
        '    free = (seen.newest < judged.cutoff_ms[row]) & (items["commit_seq"] <= aged_seq)\n',
        "    free = seen.newest < judged.cutoff_ms[row]\n",
        _RETENTION,
    ),
    Mutant(
        _CUTTING,
        '    free = (seen.newest < judged.cutoff_ms[row]) & (items["commit_seq"] <= aged_seq)\n',
        '    free = (items["max_store_time"] <= judged.cutoff_ms[row]) & (items["commit_seq"] <= aged_seq)\n',
        _RETENTION,
    ),
    Mutant(_CUTTING, "        free &= ~one\n", "        pass\n", _RETENTION),
    Mutant(_CUTTING, "    stays = seen.first_of(~free)\n", "    stays = seen.first_of(free)\n", _RETENTION),
    Mutant(
        _CUTTING,
        '    first = np.where(inside >= 0, items["start"][inside], first)\n',
        "",
        _RETENTION,
    ),
    Mutant(
        _HISTORIES,
        '        order = np.lexsort((items["start"], row))\n',
        '        order = np.argsort(row, kind="stable")\n',
        _RETENTION,
    ),
    Mutant(
        _RETAIN,
        "        enough = np.flatnonzero(kept - before >= rules.keep_bytes[topics])\n",
        "        enough = np.flatnonzero(kept >= rules.keep_bytes[topics])\n",
        _RETENTION,
    ),
    Mutant(
        _RETAIN,
        "    now_ms, youngest_ms = moment.now_ms, moment.now_ms - policy.min_age_ms\n",
        "    now_ms, youngest_ms = moment.now_ms, moment.now_ms\n",
        _RETENTION,
    ),
    Mutant(
        _RETAIN,
        "for prefix in (GENERATION, CLOSED) for queue",
        "for prefix in (GENERATION,) for queue",
        _RETENTION,
    ),
    Mutant(
        "tiered/archive/state/walking.py",
        "        last = _begin(keys, last, whole_topics)\n",
        "",
        _RETENTION,
    ),
    Mutant(
        _RETAIN,
        "    if plan.trimmed_bytes * 100 > plan.live_bytes * max_trim_percent:\n",
        "    if False:\n",
        f"{_UNIT}::test_a_run_that_takes_too_much_asks_first_with_the_figure_that_allows_it",
    ),
    Mutant(
        _RETAIN,
        'np.where(rows < 0, -1, trims.rows["first_offset"][rows])',
        "None",
        _RETENTION,
    ),
    Mutant(
        _RETAIN,
        "    judged = Judged(cutoff_ms, cutoff_ms, covers[:, seen.queue], given)\n",
        "    judged, aged_seq = Judged(cutoff_ms, cutoff_ms, covers[:, seen.queue], given), 1 << 60\n",
        f"{_UNIT}::test_a_queue_whose_tail_was_rewound_meanwhile_loses_nothing_that_was_written_anew",
    ),
    Mutant(
        "tiered/archive/rewrite/policy.py",
        "    if abs(local_ms - store_ms) > MOST_APART_MS:\n",
        "    if store_ms - local_ms > MOST_APART_MS:\n",
        f"{_UNIT}::test_now_is_the_earlier_clock_and_clocks_far_apart_stop_everything",
    ),
    Mutant(
        "tiered/archive/rewrite/forgetting.py",
        "            if before == now is not None\n",
        "            if now is not None\n",
        f"{_FORGETTING} -k left_out_at_its_place",
    ),
    Mutant(
        "tiered/archive/rewrite/forgetting.py",
        "            if now_ms() - since_ms >= self._grace_ms:\n",
        "            if True:\n",
        f"{_FORGETTING} -k a_grace_after_it_was_seen",
    ),
    Mutant(
        "tiered/write/router.py",
        'np.where(present, table["highest_generation"], forgotten)',
        'np.where(present, table["highest_generation"], 0)',
        f"{_FORGETTING} -k who_begins_before_it",
    ),
    Mutant(
        "tiered/daemon/brokertopics.py",
        "        since |= {topic: now_ms() for topic in deleted if topic not in noted}\n",
        "        since |= {topic: now_ms() for topic in deleted}\n",
        f"{_FORGETTING} -k a_grace_after_it_was_seen",
    ),
    Mutant(
        "tiered/repair/derive.py",
        "    if forgotten:\n        yield forgotten\n",
        "",
        f"{_FORGETTING} -k damaged_commit",
    ),
    Mutant(
        "tiered/archive/state/values.py",
        "        return any(n not in progress or progress[n].physical_offset < end for n, end in self.ends.items())\n",
        "        return any(n not in progress for n in self.ends)\n",
        "tests/unit/test_fold_forget.py::test_what_may_lie_behind_a_position",
    ),
    Mutant(
        "tiered/archive/rewrite/forgetting.py",
        "        for topic, since_ms in self._broker.empty_since(empty, now_ms).items():\n",
        "        for topic, since_ms in self._broker.empty_since(empty, now_ms).items() if empty else ():\n",
        f"{_FORGETTING} -k a_grace_after_it_was_seen",
    ),
)
