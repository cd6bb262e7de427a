"""The rules of the fold, of the log's end and of checkpoints."""

from __future__ import annotations

from tests.mutants import Mutant

_STATE_FOLD = "tests/unit/test_state_fold.py"
_ARCHIVE_LOG = "tests/unit/test_archive_log.py"
_ARCHIVE_READER = "tests/unit/test_archive_reader.py"
_STATE_CHECKPOINT = "tests/unit/test_state_checkpoint.py"
_ARCHIVE_IDENTITY = "tests/unit/test_archive_identity.py"

MUTANTS = (
    Mutant(
        "tiered/archive/state/view.py",
        '                for i in np.flatnonzero(mine & (found["last_physical_end"] > physical_offset)).tolist():\n',
        '                for i in np.flatnonzero(mine & (found["birth_physical"] > physical_offset)).tolist():\n',
        "tests/property/test_retention_histories.py::test_a_rewind_into_what_was_trimmed_in_part_brings_nothing_back",
    ),
    Mutant(
        "tiered/archive/fold/cut.py",
        '        record.max_store_time = int(runs["max_store_time"].max())\n',
        '        record.max_store_time = int(runs["max_store_time"][0])\n',
        "tests/property/test_state_histories.py::test_counters_bounds_and_references",
    ),
    Mutant(
        "tiered/archive/fold/runs.py",
        '("a run starts at its queue\'s maximum", by.after(end, record, "max_offset"), start),',
        '("a run starts at its queue\'s maximum", start, start),',
        f"{_STATE_FOLD}::test_the_violation_names_the_row",
    ),
    Mutant(
        "tiered/archive/fold/runs.py",
        '    fold.check_rows(batch, stated == expected, "generations count up per queue", expected, stated)\n',
        "",
        f"{_STATE_FOLD}::test_a_generation_begins_with_a_run",
    ),
    Mutant(
        "tiered/archive/fold/runs.py",
        "    fold.check_rows(batch, physical >= settled, rule, settled, physical)\n",
        "",
        f"{_STATE_FOLD}::test_nothing_is_archived_twice",
    ),
    Mutant(
        "tiered/archive/fold/runs.py",
        "    fold.check_rows(batch, start == expected, rule",
        "    fold.check_rows(batch, start >= expected, rule",
        f"{_STATE_FOLD}::test_a_gap_moves_the_maximum",
    ),
    Mutant(
        "tiered/archive/fold/cut.py",
        '    fold.check(position <= reached, "a Rewind',
        '    fold.check(True, "a Rewind',
        f"{_STATE_FOLD}::test_a_rewind_takes_marks_and_gaps_back",
    ),
    Mutant(
        "tiered/archive/fold/cut.py",
        "    cut_marks(fold, lineage, position)\n",
        "",
        f"{_STATE_FOLD}::test_a_rewind_takes_marks_and_gaps_back",
    ),
    Mutant(
        "tiered/archive/fold/cut.py",
        "    _check_complete(fold, lineage, position)\n",
        "",
        f"{_STATE_FOLD}::test_wrong_rewinds",
    ),
    Mutant(
        "tiered/archive/fold/cut.py",
        "    _cut_phys_gaps(fold, lineage, position)\n",
        "",
        f"{_STATE_FOLD}::test_a_rewind_takes_marks_and_gaps_back",
    ),
    Mutant(
        "tiered/archive/fold/cut.py",
        "    fold.put_closed(queue, generation, part)\n\n\ndef _choose",
        "\n\ndef _choose",
        f"{_STATE_FOLD}::test_a_rewind_closes_runs_whole_and_in_part",
    ),
    Mutant(
        "tiered/archive/fold/cut.py",
        "    chosen.highest_generation = emptied.highest_generation\n",
        "",
        f"{_STATE_FOLD}::test_a_rewind_that_empties_a_generation_brings_the_one_before_back",
    ),
    Mutant(
        "tiered/archive/fold/cut.py",
        "    fold.check(record.min_offset <= first <= highest, rule",
        "    fold.check(record.min_offset <= first, rule",
        f"{_STATE_FOLD}::test_trimming_moves_the_minimum",
    ),
    Mutant(
        "tiered/archive/fold/replace.py",
        "    fold.check(kept == rows if whole else kept <= rows, rule",
        "    fold.check(True, rule",
        f"{_STATE_FOLD}::test_wrong_replacements",
    ),
    Mutant(
        "tiered/archive/fold/replace.py",
        "    fold.check(expected == found, rule, queue=mq, expected=str",
        "    fold.check(True, rule, queue=mq, expected=str",
        f"{_STATE_FOLD}::test_wrong_replacements",
    ),
    Mutant(
        "tiered/archive/fold/replace.py",
        "        fold.check(found >= reached, rule",
        "        fold.check(True, rule",
        f"{_STATE_FOLD}::test_parts_of_one_run_lie_one_behind_the_other",
    ),
    Mutant(
        "tiered/archive/fold/replace.py",
        '        int(last["physical_end"]) if ends else target.physical_end,\n',
        "        target.physical_end,\n",
        f"{_STATE_FOLD}::test_wrong_replacements",
    ),
    Mutant(
        "tiered/archive/fold/replace.py",
        "    if begins and ends and _uncut(own):\n",
        "    if False:\n",
        f"{_STATE_FOLD}::test_wrong_replacements",
    ),
    Mutant(
        "tiered/archive/fold/replace.py",
        '        upto = int(np.searchsorted(runs["start"], target.end))\n',
        "        upto = len(runs)\n",
        f"{_STATE_FOLD}::test_each_target_keeps_the_bounds_of_its_own_sources",
    ),
    Mutant(
        "tiered/archive/fold/logedits.py",
        "            ours = not isinstance(made, ObjectKey) or made.epoch == fold.commit.epoch\n",
        "            ours = True\n",
        f"{_STATE_FOLD}::test_an_object_is_made_in_the_epoch_of_its_commit",
    ),
    Mutant(
        "tiered/archive/fold/logedits.py",
        "not isinstance(saved, CheckpointKey) or saved.seq < floor\n",
        "not isinstance(saved, CheckpointKey) or saved.seq <= floor\n",
        f"{_STATE_FOLD}::test_what_stands_for_commits_and_what_opening_needs_is_not_retired",
    ),
    Mutant(
        "tiered/archive/fold/logedits.py",
        "            fold.check(named != U8.pack(fold.commit.seq), rule",
        "            fold.check(True, rule",
        f"{_STATE_FOLD}::test_a_key_is_deleted_by_a_later_commit",
    ),
    Mutant(
        "tiered/archive/fold/context.py",
        "            self.check(count == 0 or found.retired_by is None, rule",
        "            self.check(True, rule",
        f"{_STATE_FOLD}::test_nothing_lies_in_a_retired_object",
    ),
    Mutant(
        "tiered/archive/fold/logedits.py",
        '    check(row["epoch"] == commit.epoch == epoch,',
        '    check(row["epoch"] == commit.epoch,',
        f"{_STATE_FOLD}::test_an_epoch_is_the_next_one",
    ),
    Mutant(
        "tiered/archive/fold/logedits.py",
        "    if min_reader > FORMAT_VERSION:\n",
        "    if False:\n",
        f"{_STATE_FOLD}::test_an_archive_of_the_future_is_refused",
    ),
    Mutant(
        "tiered/archive/fold/logedits.py",
        '            offset >= lowest, "progress',
        '            True, "progress',
        f"{_STATE_FOLD}::test_progress_is_monotone",
    ),
    Mutant(
        "tiered/archive/fold/logedits.py",
        "    if type(floor) is not int or not old <= floor <= fold.commit.seq:\n",
        "    if type(floor) is not int or not old <= floor:\n",
        f"{_STATE_FOLD}::test_the_floor_never_goes_down",
    ),
    Mutant(
        "tiered/archive/fold/logedits.py",
        "                    state.references == 0 or not fold.scope.everything,",
        "                    True,",
        f"{_STATE_FOLD}::test_a_rewind_closes_runs_whole_and_in_part",
    ),
    Mutant(
        "tiered/archive/fold/logedits.py",
        "fold.check(retired is None, ",
        "fold.check(True, ",
        f"{_STATE_FOLD}::test_retired_and_deleted",
    ),
    Mutant(
        "tiered/archive/fold/apply.py",
        "    check(commit.previous_id == previous, rule,",
        "    check(True, rule,",
        f"{_STATE_FOLD}::test_a_commit_follows_the_head",
    ),
    Mutant(
        "tiered/archive/fold/apply.py",
        '    check(commit.seq == seq, "commits',
        '    check(True, "commits',
        f"{_STATE_FOLD}::test_a_commit_follows_the_head",
    ),
    Mutant(
        "tiered/archive/fold/apply.py",
        '        check(commit.epoch == head.epoch, "a',
        '        check(True, "a',
        f"{_STATE_FOLD}::test_an_epoch_is_what_its_open_epoch_says",
    ),
    Mutant(
        "tiered/archive/log/writer.py",
        "        if found is not None and found.commit.commit_id == planned.commit.commit_id:\n",
        "        if found is not None:\n",
        f"{_ARCHIVE_LOG}::test_another_commit_behind_a_412_is_a_fence",
    ),
    Mutant(
        "tiered/archive/log/writer.py",
        "            except Conflict:\n                return self._read_back(planned, key)\n",
        '            except Conflict:\n                raise Fenced("another writer", key=key)\n',
        f"{_ARCHIVE_LOG}::test_a_lost_answer_is_a_success",
    ),
    Mutant(
        "tiered/archive/log/writer.py",
        "            make_durable(self.reader.provider, self.reader.keys.commit(head.seq))\n",
        "            pass\n",
        f"{_ARCHIVE_LOG}::test_what_is_built_upon_is_made_durable_first",
    ),
    Mutant(
        "tiered/archive/log/writer.py",
        "planned.commit.commit_id:\n            make_durable(self.reader.provider, key)\n",
        "planned.commit.commit_id:\n",
        f"{_ARCHIVE_LOG}::test_what_is_built_upon_is_made_durable_first",
    ),
    Mutant(
        "tiered/archive/log/writer.py",
        "        if applied not in (before, planned.changes.head.position()):\n",
        "        if False:\n",
        "tests/unit/test_local_fold.py::test_a_commit_does_not_enter_a_fold_that_lacks_the_one_before_it",
    ),
    Mutant(
        "tiered/archive/log/counting.py",
        "        if found is None and self._reader.checkpoint_above(seq - 1):\n",
        "        if False:\n",
        "tests/unit/test_freed_numbers.py::test_a_number_that_was_freed_is_won_and_does_not_count",
    ),
    Mutant(
        "tiered/archive/log/counting.py",
        "commit(seq + 1) if self._reader.is_there(seq + 1) else None\n",
        "commit(seq + 1) if False else None\n",
        "tests/unit/test_freed_numbers.py::test_what_follows_is_a_fence_although_the_commit_is_in_the_history",
    ),
    Mutant(
        "tiered/archive/log/writer.py",
        "            self._counted.begin()\n",
        "            pass\n",
        "tests/unit/test_freed_numbers.py::test_a_claim_is_always_proven",
    ),
    Mutant(
        "tiered/archive/log/reader.py",
        "                if newest > seq and newest != begun_from:\n",
        "                if False:\n",
        "tests/unit/test_freed_numbers.py::test_a_reader_that_slept_believes_no_freed_number",
    ),
    Mutant(
        "tiered/archive/log/reader.py",
        "            if found is None and not self.checkpoint_above(head.seq - 1):\n",
        "            if False:\n",
        f"{_ARCHIVE_READER}::test_a_bucket_that_ends_before_the_cache_is_refused",
    ),
    Mutant(
        "tiered/archive/log/reader.py",
        "        if commit.seq != seq or commit.archive_id != self.identity.archive_id:\n",
        "        if commit.archive_id != self.identity.archive_id:\n",
        f"{_ARCHIVE_READER}::test_a_commit_under_anothers_key_is_corrupt",
    ),
    Mutant(
        "tiered/archive/log/reader.py",
        "            if not self.is_there(reached + 2):\n",
        "            if True:\n",
        f"{_ARCHIVE_READER}::test_the_end_is_a_404_and_then_a_listing",
    ),
    Mutant(
        "tiered/archive/log/reader.py",
        "            if not self.checkpoint_above(reached.seq):\n",
        "            if True:\n",
        f"{_ARCHIVE_READER}::test_the_end_is_a_404_and_then_a_listing",
    ),
    Mutant(
        "tiered/archive/checkpoint/store.py",
        '    if not key.endswith(f"checkpoint/{manifest.seq:020d}"):\n',
        "    if False:\n",
        f"{_STATE_CHECKPOINT}::test_a_checkpoint_under_another_number",
    ),
    Mutant(
        "tiered/archive/checkpoint/store.py",
        "    if len(fetched.data) > MAX_MANIFEST_BYTES:\n",
        "    if False:\n",
        f"{_STATE_CHECKPOINT}::test_a_manifest_is_read_up_to_a_bound",
    ),
    Mutant(
        "tiered/archive/checkpoint/store.py",
        "        with contextlib.suppress(Corrupt):  # counts",
        "        with contextlib.nullcontext():  # counts",
        f"{_ARCHIVE_READER}::test_a_rotten_checkpoint_counts_as_absent",
    ),
    Mutant(
        "tiered/archive/log/identity.py",
        "    if found != expected:\n",
        "    if False:\n",
        f"{_ARCHIVE_IDENTITY}::test_every_flipped_bit_and_every_cut_is_damage",
    ),
    Mutant(
        "tiered/archive/log/identity.py",
        "    except Conflict:\n        return read_identity(provider, keys)\n",
        "    except Conflict:\n        return made\n",
        f"{_ARCHIVE_IDENTITY}::test_two_at_once_agree_on_the_first",
    ),
    Mutant(
        "tiered/archive/log/identity.py",
        "    if (identity.cluster, identity.broker) != (keys.cluster, keys.broker):\n",
        "    if False:\n",
        f"{_ARCHIVE_IDENTITY}::test_an_archive_of_another_broker_is_foreign",
    ),
    Mutant(
        "tiered/archive/checkpoint/format.py",
        "(length, crc, magic) != (size, crc32c(body), MANIFEST_MAGIC)",
        "(length, magic) != (size, MANIFEST_MAGIC)",
        f"{_STATE_CHECKPOINT}::test_a_manifest_whose_content_makes_sense_and_fails_its_checksum",
    ),
)
