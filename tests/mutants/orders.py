"""What is looked at first, put first, linked again; and the bytes of a budget."""

from __future__ import annotations

from tests.mutants import Mutant

_GUARDS = "tests/unit/test_write_guards.py"
_LEAKS = "tests/unit/test_fetch_leaks.py"

MUTANTS = (
    Mutant(
        "tiered/opening/open.py",
        "        flush = Flush((rewind, mark.progress(lineage)), outcome.offset, self._now())\n",
        "        flush = Flush((rewind, mark.progress(lineage)), None, self._now())\n",
        f"{_GUARDS}::test_files_above_a_rewind_are_linked_again",
    ),
    Mutant(
        "tiered/write/dispatcher.py",
        "        self._broker = self._source.broker_mark()\n        self._mark = self._comparison.reconcile()\n",
        "        self._mark = self._comparison.reconcile()\n        self._broker = self._source.broker_mark()\n",
        f"{_GUARDS}::test_a_restart_during_the_comparison_is_compared_again",
    ),
    Mutant(
        "tiered/write/preparer.py",
        "        crc = crc32c(extent.blank_header, crc32c(copy, mark.crc))\n",
        "        crc = crc32c(copy, mark.crc)\n",
        f"{_GUARDS}::test_the_mark_at_a_files_end_covers_the_blanks_header_and_not_its_filler",
    ),
    Mutant(
        "tiered/write/dispatcher.py",
        '''so that it stands exactly where the bytes are missing."""
        while self.buffer:
''',
        '''so that it stands exactly where the bytes are missing."""
        while False:
''',
        f"{_GUARDS}::test_a_gap_stands_behind_what_was_buffered_before_it",
    ),
    Mutant(
        "tiered/archive/log/reader.py",
        "            if found is not None and found.commit.commit_id == head.commit_id:\n",
        "            if found is not None:\n",
        f"{_GUARDS}::test_a_fork_of_equal_length_does_not_pass_for_the_cached_fold",
    ),
    Mutant(
        "tiered/archive/checkpoint/store.py",
        "        batch += [pair for pair in pairs if pair[0] != HEAD] if found else pairs\n",
        "        batch += pairs\n",
        f"{_GUARDS}::test_a_checkpoint_whose_loading_is_cut_short_is_no_fold",
    ),
    Mutant(
        "tiered/fetch/loader.py",
        "            flight.future.set_result(value)\n        self._budget.settle(charge, ahead=ahead)\n",
        "            flight.future.set_result(value)\n",
        f"{_LEAKS} -k tables_under_way",
    ),
    Mutant(
        "tiered/fetch/loader.py",
        "        self._budget.settle(load.charge, kept, ahead=load.for_later)\n",
        "        self._budget.settle(load.charge if found else 0, kept, ahead=load.for_later)\n",
        f"{_LEAKS} -k cancels",
    ),
    Mutant(
        "tiered/fetch/lanes.py",
        "            self._running -= 1\n        job.run(False)\n",
        "            self._running -= 1\n",
        f"{_LEAKS} -k cancels",
    ),
    Mutant(
        "tiered/fetch/loader.py",
        "        if foreground:\n            self._budget.request(charge, start, account.share)\n",
        "        if foreground:\n            start()\n",
        f"{_LEAKS} -k tables_under_way",
    ),
    Mutant(
        "tiered/fetch/loader.py",
        "            self._budget.settle(load.charge, ahead=True)\n            return True\n",
        "            return True\n",
        _LEAKS,
    ),
    Mutant(
        "tiered/fetch/fetcher.py",
        "        self.budget.release(self.cache.clear())\n",
        "        self.cache.clear()\n",
        f"{_LEAKS} -k leave_nothing",
    ),
)
