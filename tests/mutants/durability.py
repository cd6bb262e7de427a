"""Syncs and orders that only a power cut or a crash shows."""

from __future__ import annotations

from tests.mutants import Mutant

_DAMAGE = "tests/contract/test_metadata_damage.py"
_CUT = "tests/fault/test_powercut.py"

MUTANTS = (
    Mutant(
        "tiered/archive/log/writer.py",
        "                        self._counted.behind_nothing(seq)\n",
        "                        pass\n",
        "tests/unit/test_archive_log.py::"
        "test_a_writer_that_slept_until_the_commits_behind_its_own_were_removed_is_fenced",
    ),
    Mutant(
        "tiered/durable.py",
        "        os.fsync(descriptor)\n",
        "        pass\n",
        f"{_CUT}::test_the_writers_own_files_survive",
    ),
    Mutant(
        "tiered/durable.py",
        "        os.fsync(file.fileno())\n    os.replace(",
        "    os.replace(",
        f"{_CUT}::test_the_writers_own_files_survive",
    ),
    Mutant(
        "tiered/durable.py",
        "        file.seek(length)\n        file.write(data)\n        file.flush()\n        os.fsync(file.fileno())\n",
        "        file.seek(length)\n        file.write(data)\n",
        f"{_CUT} -k behind_what",
    ),
    Mutant(
        "tiered/durable.py",
        "        file.truncate(length)\n",
        "",
        f"{_CUT} -k behind_what",
    ),
    Mutant(
        "tiered/durable.py",
        "    sync(os.path.dirname(os.path.abspath(path)))\n",
        "",
        f"{_CUT}::test_the_writers_own_files_survive",
    ),
    Mutant(
        "tiered/durable.py",
        "        sync(os.path.dirname(made))\n",
        "        pass\n",
        f"{_CUT} -k hold",
    ),
    Mutant("tiered/source/hold.py", "        durable.sync(directory)\n", "        pass\n", f"{_CUT} -k hold"),
    Mutant(
        "tiered/metadata/rocksoptions.py",
        "        self.scanned.set_compression_type(rocksdict.DBCompressionType.zstd())  # of runs, a fifth is left\n",
        "        self.scanned.set_compression_type(rocksdict.DBCompressionType.none())\n",
        "tests/contract/test_metadata_contract.py::test_rocksdb_compresses_young_data_too",
    ),
    Mutant(
        "tiered/metadata/rocksdb.py",
        "            self._call(lambda db: db.flush_wal(True))\n",
        "",
        f"{_CUT} -k put_many",
    ),
    Mutant(
        "tiered/metadata/rocksdb.py",
        "            self._let_go()\n",
        "",
        "tests/unit/test_local_fold.py::test_rocksdb_is_opened_again_though_somebody_is_reading_it",
    ),
    Mutant(
        "tiered/metadata/rocksdb.py",
        "            durable.sync(path)\n",
        "            pass\n",
        f"{_CUT} -k put_many",
    ),
    Mutant(
        "tiered/metadata/rocksdb.py",
        "        self._write(self._batch(puts, deletes, applied))\n",
        "        self._write(self._batch(puts, deletes, None))\n        self._write(self._batch((), (), applied))\n",
        f"{_CUT} -k whole_or_absent",
    ),
    Mutant(
        "tiered/metadata/rocksredo.py",
        "        if self._failed is not None:\n            raise Unavailable(\n",
        "        if False:\n            raise Unavailable(\n",
        "tests/contract/test_redo_contract.py::test_after_a_full_disk_redo_begins_where_the_store_says",
    ),
    Mutant(
        "tiered/metadata/rocksload.py",
        "        self._writer = None\n        remove_left(self._directory)\n",
        "        self._writer = None\n",
        "tests/contract/test_metadata_contract.py::test_a_load_cut_short_is_cleared",
    ),
    Mutant(
        "tiered/metadata/rocksdb.py",
        "            remove_left(self._directory)\n",
        "            pass\n",
        "tests/contract/test_metadata_contract.py::test_a_load_that_is_killed_leaves_no_position_and_no_file",
    ),
    Mutant(
        "tiered/metadata/rockscursors.py",
        "        check(last)\n",
        "",
        f"{_DAMAGE}::test_a_walk_that_meets_damage_does_not_end_as_if_that_was_all",
    ),
    Mutant(
        "tiered/metadata/rocksdb.py",
        "            self._check_note()\n",
        "",
        f"{_DAMAGE}::test_damage_met_while_it_is_read_is_remembered",
    ),
    Mutant(
        "tiered/metadata/rocksdb.py",
        "            self.make_anew()\n            return\n",
        "            pass\n",
        f"{_DAMAGE}::test_a_damaged_store_can_be_cleared_while_it_is_open",
    ),
    Mutant(
        "tiered/metadata/jsonfile.py",
        "            durable.replace(self._path, json.dumps(tree).encode())\n",
        "            self._path.write_bytes(json.dumps(tree).encode())\n",
        f"{_CUT} -k put_many",
    ),
    Mutant(
        "tiered/provider/posix.py",
        'its ``link`` and its last ``fsync``."""\n        self',
        'its ``link`` and its last ``fsync``."""\n        return\n        self',
        f"{_CUT} -k made_durable",
    ),
    Mutant(
        "tiered/provider/posix.py",
        "            length = write_all(descriptor, views(parts))\n            os.fsync(descriptor)\n",
        "            length = write_all(descriptor, views(parts))\n",
        f"{_CUT} -k object_that_put",
    ),
    Mutant(
        "tiered/metadata/rockspeek.py",
        "        if before <= logs:\n",
        "        if logs:\n",
        "tests/contract/test_metadata_peek.py::test_where_a_log_went_meanwhile_it_is_looked_again",
    ),
    Mutant(
        "tiered/source/rocks.py",
        "        cursor.next()\n    cursor.status()\n",
        "        cursor.next()\n",
        "tests/unit/test_source_rocks.py::test_a_damaged_block_does_not_make_the_list_shorter",
    ),
    Mutant(
        "tiered/metadata/rocksdb.py",
        "            except BaseException:\n                self._failed = failed\n",
        "            except BaseException:\n",
        "tests/unit/test_local_fold.py::test_rocksdb_that_cannot_be_opened_again_at_once_is_when_it_is_read",
    ),
    Mutant(
        "tiered/metadata/rocksfamilies.py",
        "                closing.callback(family.close)\n",
        "                family.close()\n",
        "tests/unit/test_local_fold.py::test_all_families_are_closed_though_one_says_that_a_write_failed",
    ),
)
