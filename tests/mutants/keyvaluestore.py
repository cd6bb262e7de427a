"""Stores of the key-value view: what a map keeps for those who look at it, what its file says, what it may hold."""

from __future__ import annotations

from tests.mutants import Mutant

_MAP = "tests/contract/test_map_store.py"
_SNAPSHOT = "tests/unit/test_view_snapshot.py"
_REDO = "tests/contract/test_redo_contract.py"

MUTANTS = (
    Mutant(
        "tiered/metadata/mapfile.py",
        "                deque(map(view.kept.setdefault, new, map(self._values.get, new)), maxlen=0)\n",
        "                deque(map(view.kept.__setitem__, new, map(self._values.get, new)), maxlen=0)\n",
        f"{_MAP} -k long_life",
    ),
    Mutant(
        "tiered/metadata/mapfile.py",
        "                deque(map(view.kept.setdefault, lost, lost.values()), maxlen=0)\n",
        "",
        f"{_MAP} -k long_life",
    ),
    Mutant(
        "tiered/metadata/mapfile.py",
        "            view, self._changed, counted = self._frozen(), False, self._bytes\n",
        "            view, self._changed, counted = self, False, self._bytes\n",
        f"{_MAP} -k while_the_file",
    ),
    Mutant(
        "tiered/metadata/mapfile.py",
        "        if self._exact or size > self._most_bytes:\n",
        "        if size > self._most_bytes:\n",
        f"{_MAP} -k beyond_the_bound",
    ),
    Mutant(
        "tiered/metadata/mapfile.py",
        "                del self._unordered[-_AT_ONCE:]\n",
        "                del self._unordered[-_AT_ONCE - 1 :]\n",
        f"{_MAP} -k part_by_part",
    ),
    Mutant(
        "tiered/metadata/mapfile.py",
        "        if len(self._unordered) > _UNORDERED:\n            self._bring_in_order()\n",
        "",
        f"{_MAP} -k part_by_part",
    ),
    Mutant(
        "tiered/metadata/mapfile.py",
        "            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            pass\n",
        f"{_REDO} -k two_do_not",
    ),
    Mutant(
        "tiered/metadata/mapformat.py",
        "        value, count = crc32c(frame, value), count + len(keys)\n",
        "        value, count = crc32c(frame), count + len(keys)\n",
        _MAP,
    ),
    Mutant(
        "tiered/metadata/mapformat.py",
        '        data = self._file.read(count) if count <= self._left else b""\n',
        "        data = self._file.read(count)\n",
        f"{_MAP} -k no_more_bytes",
    ),
    Mutant(
        "tiered/metadata/keyorder.py",
        "    found.sort()\n",
        "",
        f"{_MAP} -k all_their_bytes",
    ),
    Mutant(
        "tiered/metadata/keyorder.py",
        "        self._own = [False] * len(self._lists)\n        made._own = list(self._own)\n",
        "        made._own = [False] * len(self._lists)\n",
        f"{_MAP} -k long_life",
    ),
    Mutant(
        "tiered/metadata/rocksredo.py",
        "        super().load(chain(first, batches))\n",
        "        super().load(batches)\n        self.put_many((), applied=applied)\n",
        f"{_REDO} -k cut_short",
    ),
    Mutant(
        "tiered/codec/format/keyvalue.py",
        "    if (found_id, found_number) != (snapshot_id, number):\n",
        "    if found_number != number:\n",
        f"{_SNAPSHOT} -k of_another_snapshot",
    ),
    Mutant(
        "tiered/codec/format/keyvalue.py",
        "    if crc32c(body) != sum_of_body:\n",
        "    if False:\n",
        f"{_SNAPSHOT} -k below_a_sum",
    ),
    Mutant(
        "tiered/view/snapshot.py",
        "    if found != told:\n",
        "    if False:\n",
        f"{_SNAPSHOT} -k those_of_the_manifest",
    ),
    Mutant(
        "tiered/view/snapshot.py",
        "        if piece_keys[0] <= last:\n",
        "        if False:\n",
        f"{_SNAPSHOT} -k those_of_the_manifest",
    ),
    Mutant(
        "tiered/view/snapshot.py",
        "    if entries != snapshot.entries or set(entries) != set(snapshot.entries):\n",
        "    if False:\n",
        f"{_SNAPSHOT} -k those_of_the_manifest",
    ),
    Mutant(
        "tiered/view/snapshot.py",
        '    if store.applied() is not None or next(store.iterate(b""), None) is not None:\n',
        "    if store.applied() is not None:\n",
        f"{_SNAPSHOT} -k left_alone",
    ),
    Mutant(
        "tiered/view/snapshot.py",
        "        old = len(kept) == keep and name < kept[-1]\n",
        "        old = name < kept[-1]\n",
        f"{_SNAPSHOT} -k too_few",
    ),
    Mutant(
        "tiered/view/snapshot.py",
        "            if whole:\n                provider.delete(ordered.pop(0))\n",
        "            if whole:\n                ordered.append(ordered.pop(0))\n",
        f"{_SNAPSHOT} -k breaks_off",
    ),
    Mutant(
        "tiered/archive/encryption/provider.py",
        "        case CheckpointKey() | KeyValueKey():\n",
        "        case CheckpointKey():\n",
        "tests/scenes/test_snapshots_beside.py -k encrypted_archive",
    ),
)
