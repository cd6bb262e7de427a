"""Where a POSIX archive may write, what a store without times may do, what a start asks of a store."""

from __future__ import annotations

from tests.mutants import Mutant

_MOUNT = "tests/unit/test_provider_mount.py"

MUTANTS = (
    Mutant(
        "tiered/provider/posixplace.py",
        "            descriptor = os.open(path, _DIRECTORY)\n        except FileNotFoundError",
        "            os.makedirs(path, exist_ok=True)\n            descriptor = os.open(path, _DIRECTORY)\n"
        "        except FileNotFoundError",
        f"{_MOUNT} -k nothing_is_absent",
    ),
    Mutant(
        "tiered/provider/posixplace.py",
        "        if not guard.same(data):",
        "        if False:",
        f"{_MOUNT} -k another_archive",
    ),
    Mutant(
        "tiered/provider/posixplace.py",
        "        if anchor.guarded and os.fstat(",
        "        if False and os.fstat(",
        f"{_MOUNT} -k disk_below",
    ),
    Mutant(
        "tiered/provider/posix.py",
        "                    self._check_needs(key, target.anchor)\n",
        "",
        f"{_MOUNT} -k lacks_the_commit_before",
    ),
    Mutant(
        "tiered/archive/log.py",
        "                    if lost in objects:\n                        objects[lost]()\n",
        "                    pass\n",
        f"{_MOUNT} -k older_copy",
    ),
    Mutant(
        "tiered/archive/reader.py",
        "        guard(provider, keys.identity, partial(is_identity_of, identity.archive_id))\n",
        "",
        f"{_MOUNT} -k nothing_is_absent",
    ),
)
