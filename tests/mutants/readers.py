"""Opening and reading: what is asked for ahead, what a partial fold leaves out, what a damaged shard means."""

from __future__ import annotations

from tests.mutants import Mutant

_READER = "tests/unit/test_archive_reader.py"
_PARTIAL = "tests/unit/test_archive_partial.py"
_CACHE = "tests/unit/test_commit_cache.py"

MUTANTS = (
    Mutant(
        "tiered/archive/ahead.py",
        "                if value is None and then < asked:\n",
        "                if False:\n",
        f"{_READER} -k put_while_those_behind_it",
    ),
    Mutant(
        "tiered/archive/ahead.py",
        "    fitting = AHEAD_BYTES // largest_bytes if largest_bytes else MOST_AHEAD\n",
        "    fitting = MOST_AHEAD\n",
        f"{_READER} -k not_all_held_at_once",
    ),
    Mutant(
        "tiered/archive/ahead.py",
        "2 * (found - ONE_BY_ONE + 1)))\n",
        "2 * found))\n",
        f"{_READER} -k keeps_up_asks_for_nothing",
    ),
    Mutant(
        "tiered/daemon/checkpointer.py",
        "counted + self._behind >= self._commits",
        "counted >= self._commits",
        "tests/unit/test_status.py -k earlier_processes",
    ),
    Mutant(
        "tiered/archive/fold/runs.py",
        "        _append(fold, batch, first_run + rows)\n",
        "        _append(fold, batch, first_run + np.arange(len(batch)))\n",
        f"{_PARTIAL} -k says_of_them",
    ),
    Mutant(
        "tiered/archive/fold/runs.py",
        "    _check_shapes(fold, batch)\n    fold.appended_to",
        "    fold.appended_to",
        f"{_PARTIAL} -k rules_of_the_log",
    ),
    Mutant(
        "tiered/archive/fold/replace.py",
        "            fold.runs += 1\n            continue\n",
        "            continue\n",
        f"{_PARTIAL} -k says_of_them",
    ),
    Mutant(
        "tiered/archive/fold/context.py",
        '''now below the floor."""
        if not self.scope.everything:
            return
''',
        '''now below the floor."""
''',
        f"{_PARTIAL} -k says_of_them",
    ),
    Mutant(
        "tiered/archive/log/reader.py",
        "        if missing is not None or store.applied() != position:\n",
        "        if False:\n",
        f"{_PARTIAL} -k nothing_makes_good",
    ),
    Mutant(
        "tiered/archive/log/commitcache.py",
        " and start + length <= len(kept.data):\n",
        ":\n",
        f"{_CACHE} -k bounded",
    ),
)
