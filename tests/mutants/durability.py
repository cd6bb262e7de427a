"""Syncs and orders that only a power cut or a crash shows."""

from __future__ import annotations

from tests.mutants import Mutant

_CUT = "tests/fault/test_powercut.py"

MUTANTS = (
    Mutant(
        "tiered/durable.py",
        "        os.fsync(descriptor)\n",
        "        pass\n",
        f"{_CUT}::test_the_writers_own_files_survive",
    ),
    Mutant(
        "tiered/durable.py",
        "        os.fsync(file.fileno())\n",
        "        pass\n",
        f"{_CUT}::test_the_writers_own_files_survive",
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
        "tiered/metadata/rocksdb.py",
        "            self._call(lambda db: db.flush_wal(True))\n",
        "",
        f"{_CUT} -k put_many",
    ),
    Mutant(
        "tiered/metadata/rocksdb.py",
        "            durable.sync(path)\n",
        "            pass\n",
        f"{_CUT} -k put_many",
    ),
    Mutant(
        "tiered/metadata/rocksdb.py",
        "            self._call(lambda db: db.write(batch, self._unsynced))\n",
        "            self._call(lambda db: [db.put(k, v) for k, v in puts] and db.put(_APPLIED, applied))\n",
        f"{_CUT} -k whole_or_absent",
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
)
