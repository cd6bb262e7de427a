"""Looking after damage."""

from __future__ import annotations

from tests.mutants import Mutant

_CONTENT = "tiered/archive/read/content.py"
_CONTENTS = "tests/scenes/test_content.py"

_AGREEMENT = "tiered/archive/read/agreement.py"
_AGREEING = "tests/scenes/test_agreement.py"

_COMING = "tiered/archive/read/coming.py"
_COMES = "tests/unit/test_coming.py"

_ENCRYPTED = "tests/scenes/test_scrub_encrypted.py"

_WALK = "tiered/archive/care/walk.py"
_NOTES = "tiered/archive/care/notes.py"
_TASK = "tiered/archive/care/scrub.py"
_SCRUB = "tests/scenes/test_scrub.py"

_MEND = "tiered/archive/care/mend.py"
_MENDING = "tests/scenes/test_mend.py"

MUTANTS = (
    Mutant(
        "tiered/archive/read/blockwindow.py",
        "            damaged.append(error)\n",
        "            pass\n",
        f"{_CONTENTS}::test_every_flipped_bit_is_found_and_named",
    ),
    Mutant(
        _CONTENT,
        "            yield ContentStep(damage=damage)\n",
        "            pass\n",
        f"{_CONTENTS}::test_every_flipped_bit_is_found_and_named",
    ),
    Mutant(
        _CONTENT,
        "        self._objects.check_footer(item)\n",
        "",
        f"{_CONTENTS}::test_a_missing_and_a_swapped_object",
    ),
    Mutant(
        _CONTENT,
        "            self._held.forget(key)\n",
        "            pass\n",
        f"{_CONTENTS}::test_nothing_of_an_object_is_kept_when_it_was_looked_at",
    ),
    Mutant(
        _CONTENT,
        "                self._held.forget(self._objects.key_of(item))\n",
        "                pass\n",
        f"{_CONTENTS}::test_side_by_side_the_same_is_found_in_the_same_order",
    ),
    Mutant(
        _CONTENT,
        "        found.append(_damaged(error, key))\n",
        "        pass\n",
        f"{_CONTENTS}::test_side_by_side_the_same_is_found_in_the_same_order",
    ),
    Mutant(
        _AGREEMENT,
        '        & (headers["queue_id"] == np.repeat(runs["queue_id"], counts))\n',
        "",
        f"{_AGREEING}::test_each_table_is_compared",
    ),
    Mutant(
        _AGREEMENT,
        "or (edges[row_ends] != raw_ends).any():\n",
        "or False:\n",
        f"{_AGREEING}::test_each_table_is_compared",
    ),
    Mutant(
        _AGREEMENT,
        '        and np.array_equal(columns["tags_code"], tags_codes(batch))\n',
        "",
        f"{_AGREEING}::test_each_column_is_compared_in_each_row",
    ),
    Mutant(
        "tiered/archive/care/loose.py",
        "                self._data_key(path, stored)\n",
        "                pass\n",
        f"{_ENCRYPTED}::test_every_flipped_bit_is_found_and_named",
    ),
    Mutant(
        "tiered/archive/encryption/provider.py",
        "        if footer is not None or _is_plain_commit(place, data):  # a damaged one may be mended\n",
        "        if True:\n",
        f"{_ENCRYPTED}::test_every_flipped_bit_is_found_and_named",
    ),
    Mutant(
        _COMING,
        "        while self._under_way and self._under_way[0][0] != first:\n",
        "        while False:\n",
        f"{_COMES}::test_what_was_left_out_is_passed_over",
    ),
    Mutant(
        _COMING,
        "                if self._more_follows():\n",
        "                if False:\n",
        f"{_COMES}::test_parts_of_every_large_object_are_asked_for_ahead_and_once",
    ),
    Mutant(
        _CONTENT,
        "                    while waiting and (under_way > threads or not isinstance(waiting[0][1], Future)):\n",
        "                    while len(waiting) > threads:\n",
        f"{_COMES}::test_windows_of_two_objects_are_checked_at_once",
    ),
    Mutant(
        _COMING,
        "            if self._next == first:\n",
        "            if self._next is None:\n",
        f"{_COMES}::test_objects_come_in_order_each_once",
    ),
    Mutant(
        _WALK,
        '        if not self._needed(path):\n            return Seen(path, note="unneeded")\n',
        '        if self._needed(path):\n            return Seen(path, note="unneeded")\n',
        f"{_SCRUB}::test_what_is_missing_or_cut_is_found_by_the_walk_over_the_listing",
    ),
    Mutant(
        _WALK,
        '            return Seen(path, length=stored.length, note="late")\n        except NotFound:\n',
        '            raise NotFound("late")\n        except NotFound:\n',
        f"{_SCRUB}::test_a_listing_that_lags_is_no_damage",
    ),
    Mutant(
        _WALK,
        "        if stored.length != item.length:\n",
        "        if stored.length > item.length:\n",
        f"{_SCRUB}::test_what_is_missing_or_cut_is_found_by_the_walk_over_the_listing",
    ),
    Mutant(
        _WALK,
        "        if not inline_sound and damage is None:\n",
        "        if damage is None and False:\n",
        f"{_SCRUB}::test_every_flipped_bit_is_found_by_the_walk_over_bytes",
    ),
    Mutant(
        _WALK,
        "            if not item.path and is_needed(item):\n",
        "            if not item.path:\n",
        f"{_SCRUB}::test_bytes_that_no_run_needs_are_no_damage",
    ),
    Mutant(
        _NOTES,
        "        kept = {path: found for path, found in self.findings.items() if found.walk >= number}\n",
        "        kept = dict(self.findings)\n",
        f"{_SCRUB}::test_what_is_gone_by_law_is_no_longer_listed",
    ),
    Mutant(
        _NOTES,
        "        if known is None and len(self.findings) >= MOST_FINDINGS:\n",
        "        if known is None and len(self.findings) > MOST_FINDINGS:\n",
        f"{_SCRUB}::test_findings_are_bounded_and_counted",
    ),
    Mutant(
        _TASK,
        '        self._next = began + (int(str(figures["bytes"])) / rate if rate else 0.0)\n',
        "        self._next = began\n",
        f"{_SCRUB}::test_bytes_a_second_are_kept",
    ),
    Mutant(
        _TASK,
        "        self._kept = -math.inf ",
        "        self._kept = clock.monotonic() ",
        f"{_SCRUB}::test_processes_of_one_turn_each_do_both_walks",
    ),
    Mutant(
        _NOTES,
        '        fields.get("last", ""),\n',
        "",
        f"{_SCRUB}::test_processes_of_one_turn_each_do_both_walks",
    ),
    Mutant(
        _TASK,
        "        return min(first, max(0.0, first - (self._clock.now_ms() - min(could_ms)) / 1000))\n",
        "        return first\n",
        f"{_SCRUB}::test_what_has_waited_over_restarts_does_not_wait_again",
    ),
    Mutant(
        _TASK,
        "            since_ms = self._reader.identity.created_ms if began_ms is None else began_ms\n",
        "            since_ms = self._clock.now_ms() if began_ms is None else began_ms\n",
        f"{_SCRUB}::test_a_walk_that_does_not_come_to_its_end_is_said",
    ),
    Mutant(
        _TASK,
        "            return seq is not None and written_anew(stored, seq, *whole)\n",
        "            return False\n",
        f"{_SCRUB}::test_a_store_that_lies_about_nothing_but_its_bytes",
    ),
    Mutant(
        _TASK,
        "            self._open.clear()  # the places that are kept are where the next ones begin\n",
        "            pass\n",
        f"{_SCRUB}::test_what_is_stopped_in_the_middle_of_an_object_begins_it_again",
    ),
    Mutant(
        _MEND,
        "            self._compare(copy, remedy.item, turn)\n",
        "            pass\n",
        f"{_MENDING}::test_a_copy_that_is_damaged_too_is_not_believed",
    ),
    Mutant(
        "tiered/repair/mend.py",
        "            yield copied_step\n",
        "            pass\n",
        "tests/fault/test_damage.py -k another_copy_has",
    ),
    Mutant(
        "tiered/archive/care/othercopy.py",
        "        except (Unavailable, Invalid) as error:\n",
        "        except ZeroDivisionError as error:\n",
        f"{_MENDING}::test_where_the_copy_cannot_help_the_other_sources_are_asked",
    ),
    Mutant(
        _MEND,
        "                if remedy.item is None:  # nothing else has it\n",
        "                if remedy.item is not None:\n",
        f"{_MENDING}::test_where_the_copy_cannot_help_the_other_sources_are_asked",
    ),
    Mutant(
        _MEND,
        "            raise away or lacking or error from error\n",
        "            raise lacking or error from error\n",
        f"{_MENDING}::test_a_copy_that_does_not_answer_is_named_and_asked_again",
    ),
    Mutant(
        "tiered/archive/care/othercopy.py",
        "    if found != (\n",
        "    if not found and found != (\n",
        f"{_MENDING}::test_another_commit_is_not_put_for_the_one_that_is_missing",
    ),
    Mutant(
        "tiered/archive/care/othercopy.py",
        "        if found != mine:\n",
        "        if not found:\n",
        f"{_MENDING}::test_another_archive_is_no_copy",
    ),
    Mutant(
        _MEND,
        "        return figures, after is None or not is_needed(after)\n",
        "        return figures, True\n",
        f"{_MENDING}::test_a_large_object_is_written_anew_in_parts",
    ),
    Mutant(
        _MEND,
        "        listed = sorted(self._book.notes.findings, key=_is_known_by, reverse=True)\n",
        "        listed = sorted(self._book.notes.findings)\n",
        f"{_MENDING}::test_what_is_missing_is_put_again_under_its_own_key",
    ),
    Mutant(
        "tiered/archive/care/opening.py",
        "        _check_same(provider, keys, copy)\n",
        "",
        "tests/scenes/test_cli_key.py::test_another_archive_gives_neither_identity_nor_keys",
    ),
    Mutant(
        "tiered/archive/care/walk.py",
        "                check_keys(self._reader, self._state().head())\n",
        "                pass\n",
        "tests/scenes/test_scrub_encrypted.py::test_no_walk_over_the_listing_is_sound_without_a_data_key",
    ),
    Mutant(
        "tiered/archive/rewrite/collection.py",
        "            if path in damaged or path in self._named:\n",
        "            if path in self._named:\n",
        f"{_SCRUB}::test_a_damaged_object_that_no_commit_names_is_not_deleted",
    ),
    Mutant(
        "tiered/archive/rewrite/merge.py",
        "        return self._left_out.and_objects(self._damaged(self._log.frozen()))\n",
        "        return self._left_out\n",
        f"{_SCRUB}::test_what_is_damaged_is_left_alone_until_it_is_mended",
    ),
    Mutant(
        "tiered/archive/read/verify.py",
        "        if self._workers is not None and not self._aliases:",
        "        if self._workers is not None:",
        "tests/scenes/test_alias_check.py::test_aliases_and_records_agree_at_every_stage",
    ),
    Mutant(
        "tiered/archive/read/contentworkers.py",
        "        yield item, steps\n",
        "",
        "tests/fault/test_checking_processes.py::test_processes_find_what_one_finds",
    ),
    Mutant(
        "tiered/archive/read/contentworkers.py",
        "        os._exit(1)",
        "        pass",
        "tests/fault/test_checking_processes.py::test_processes_end_with_the_one_that_started_them",
    ),
)
