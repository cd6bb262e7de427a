"""What retention takes and what it must leave."""

from __future__ import annotations

from tests.mutants import Mutant

_RETENTION = (
    "tests/property/test_retention_histories.py::test_what_is_in_range_stays_and_what_went_never_comes_back"
)
_UNIT = "tests/unit/test_retention.py"
_RETAIN = "tiered/archive/rewrite/retain.py"

_COLLECT = "tiered/archive/rewrite/collect.py"
_COLLECTION = "tiered/archive/rewrite/collection.py"
_COLLECTING = "tests/unit/test_collection.py"

_LOOKUPS = "tests/unit/test_store_lookups.py"

_TOPICS = "tests/unit/test_broker_topics.py"

_COMPACTION = "tiered/archive/read/compaction.py"
_COMPACTING = "tests/unit/test_compaction.py::test_the_newest_message_of_each_key_is_kept_with_its_offset"

MUTANTS = (
    Mutant(
        "tiered/archive/read/verify.py",
        "    return floor + 1 if floor else 0\n",
        "    return 0\n",
        "tests/unit/test_removal.py::test_removed_commits_are_no_damage_and_one_above_the_floor_is_still_mended",
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
        "    found: Ints = messages[(messages & 1) == 1] >> 1\n",
        "    found: Ints = messages >> 1\n",
        _COMPACTING,
    ),
    Mutant(
        _COMPACTION,
        "        self._spill(rest)\n",
        "",
        _COMPACTING,
    ),
    Mutant(
        "tiered/daemon/maintain.py",
        "        except TieredError as error:\n            return cls(",
        "        except ZeroDivisionError as error:\n            return cls(",
        "tests/unit/test_maintain.py::test_a_task_that_cannot_be_done_keeps_no_other_from_its_work",
    ),
    Mutant(
        "tiered/archive/rewrite/floor.py",
        "        if len(standing) < _STANDING and not retired and own.verifies(reader.provider, manifest, spend):\n",
        "        if len(standing) < _STANDING and not retired:\n",
        "tests/unit/test_removal.py::test_a_checkpoint_that_does_not_verify_counts_for_nothing",
    ),
    Mutant(
        "tiered/archive/rewrite/floor.py",
        "_STANDING = 2\n",
        "_STANDING = 1\n",
        "tests/unit/test_removal.py::test_others_checkpoints_count_for_nothing",
    ),
    Mutant(
        "tiered/archive/rewrite/floor.py",
        "    highest = min(made[1].seq, aged_commit(reader, head, snapshot_retention_ms))\n",
        "    highest = made[1].seq\n",
        "tests/unit/test_removal.py::test_the_floor_is_a_checkpoint_of_a_day_ago_and_two_stand_above_what_it_gives_up",
    ),
    Mutant(
        "tiered/archive/rewrite/floor.py",
        "        if head is None or head.floor >= self.floor or retired:\n",
        "        if head is None or head.floor >= self.floor:\n",
        "tests/unit/test_removal.py::test_a_floor_over_a_shard_that_was_retired_meanwhile_settles_to_nothing",
    ),
    Mutant(
        "tiered/archive/rewrite/floor.py",
        "        return None if self.unread is not None else set[str]().union(*self._named.values())\n",
        "        return set[str]().union(*self._named.values())\n",
        "tests/unit/test_removal.py::test_a_manifest_that_cannot_be_read_keeps_all_shards",
    ),
    Mutant(
        "tiered/archive/rewrite/collect.py",
        "        kept = [p for p in self.paths if p not in needed and self._may_go(p, place.epoch, floor, fold)]\n",
        "        kept = [p for p in self.paths if self._may_go(p, place.epoch, floor, fold)]\n",
        "tests/unit/test_removal.py::test_shards_are_kept_while_a_kept_checkpoint_names_them_or_this_process_may",
    ),
    Mutant(
        "tiered/archive/rewrite/collect.py",
        "        if self.own_keys.in_hand(path) or fold.is_retired(path):\n",
        "        if fold.is_retired(path):\n",
        "tests/unit/test_removal.py::test_shards_are_kept_while_a_kept_checkpoint_names_them_or_this_process_may",
    ),
    Mutant(
        "tiered/archive/rewrite/removal.py",
        "    below, kept = min(below, noted[0] + 1), noted[1] | set(state.inline_kept(below))\n",
        "    below, kept = min(below, noted[0] + 1), set(state.inline_kept(below))\n",
        "tests/unit/test_removal.py::test_commits_with_data_that_is_read_stay_and_go_a_grace_after_the_last_reference",
    ),
    Mutant(
        "tiered/archive/rewrite/removal.py",
        "key=lambda i: not past_retention(moves[i][1]))\n",
        "key=lambda i: False)\n",
        "tests/unit/test_removal.py::test_commits_stay_for_their_retention_after_the_floor_moved",
    ),
    Mutant(
        "tiered/daemon/checkpointer.py",
        "            if head is None or found.epoch != head.epoch - 1:\n",
        "            if head is None:\n",
        "tests/unit/test_removal.py::test_shards_are_lent_by_the_epoch_just_before_alone",
    ),
    Mutant(
        "tiered/daemon/checkpointer.py",
        "if not fold.is_retired(shard.path))\n",
        "if True)\n",
        "tests/unit/test_removal.py::test_a_shard_that_was_retired_is_not_lent",
    ),
    Mutant(
        "tiered/daemon/checkpointer.py",
        "            if not {shard.path for shard in saved.shards} <= {*made, *(shard.path for shard in kept)}:\n",
        "            if False:\n",
        "tests/unit/test_removal.py::test_a_checkpoint_that_somebody_else_put_first_is_not_ours",
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
        "    if not attributes:  # a broker has topics of its own from its first start on\n",
        "    if False:\n",
        f"{_TOPICS}::test_a_list_that_is_not_whole_is_no_reason_to_trim",
    ),
    Mutant(
        "tiered/daemon/brokertopics.py",
        "        if not self._notes or self._path is None:\n",
        "        if self._path is None:\n",
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
        f"{_TOPICS}::test_a_topic_that_is_gone_is_trimmed_whole_but_for_what_is_young_and_comes_back_as_a_new_generation",
    ),
    Mutant(
        "tiered/store/messages.py",
        "            self._follower.follow(force=True)\n",
        "            self._follower.follow()\n",
        f"{_LOOKUPS}::test_an_object_that_is_still_named_is_damage_and_a_log_that_is_away_is_unavailable",
    ),
    Mutant(
        "tiered/store/messages.py",
        "        for _ in range(LOOKS):\n",
        "        for _ in range(0):\n",
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
        "                self._named.add(path)\n",
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
        _RETAIN,
        '    free = (history.newest < cutoff_ms) & (runs["commit_seq"] <= aged_seq)\n',
        "    free = history.newest < cutoff_ms\n",
        _RETENTION,
    ),
    Mutant(
        _RETAIN,
        '    free = (history.newest < cutoff_ms) & (runs["commit_seq"] <= aged_seq)\n',
        '    free = (runs["max_store_time"] <= cutoff_ms) & (runs["commit_seq"] <= aged_seq)\n',
        _RETENTION,
    ),
    Mutant(_RETAIN, "        free &= ~held\n", "        pass\n", _RETENTION),
    Mutant(_RETAIN, "    stays = int(np.argmin(free)) if", "    stays = int(len(free) - 1) if", _RETENTION),
    Mutant(
        _RETAIN,
        "    enough = np.flatnonzero(kept >= keep_bytes)\n",
        "    enough = np.flatnonzero(kept >= keep_bytes // 2)\n",
        _RETENTION,
    ),
    Mutant(
        _RETAIN,
        "    youngest_ms = now_ms - min_age_ms\n",
        "    youngest_ms = now_ms\n",
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
        "        trim = _trim(_history(state, found), cutoff_ms, cutoff_ms, aged_seq, holds, planned)\n",
        "        trim = planned\n",
        f"{_UNIT}::test_a_queue_whose_tail_was_rewound_meanwhile_loses_nothing_that_was_written_anew",
    ),
    Mutant(
        "tiered/archive/rewrite/policy.py",
        "    if abs(local_ms - store_ms) > MOST_APART_MS:\n",
        "    if store_ms - local_ms > MOST_APART_MS:\n",
        f"{_UNIT}::test_now_is_the_earlier_clock_and_clocks_far_apart_stop_everything",
    ),
)
