"""The key-value view on a read node: what it refuses, how old it says that it is, when it stands still."""

from __future__ import annotations

from tests.mutants import Mutant

_SCENE = "tests/scenes/test_node_keyvalues.py"

MUTANTS = (
    Mutant(
        "tiered/node/keyvalues.py",
        "        if rule.freshness is Freshness.LATEST:\n",
        "        if False:\n",
        f"{_SCENE} -k both_doors",
    ),
    Mutant(
        "tiered/node/keyvalues.py",
        "        if not self._good:\n",
        "        if False:\n",
        f"{_SCENE} -k without_the_token",
    ),
    Mutant(
        "tiered/feed/remote.py",
        "        return 0.0 if self._looked is None else self._clock.monotonic() - self._looked\n",
        "        return 0.0\n",
        f"{_SCENE} -k as_old_as",
    ),
    Mutant(
        "tiered/daemon/nodeview.py",
        "                self._view.go_back()\n",
        "                pass\n",
        f"{_SCENE} -k at_its_bound",
    ),
    Mutant(
        "tiered/daemon/nodeview.py",
        "        if found > most:\n",
        "        if False:\n",
        f"{_SCENE} -k at_its_bound",
    ),
    Mutant(
        "tiered/daemon/nodeview.py",
        "            self._stands(str(error))\n            raise\n",
        "            raise\n",
        f"{_SCENE} -k bucket_is_away",
    ),
    Mutant(
        "tiered/http/kv/server.py",
        '                error.fields.setdefault("stale_ms", stale_ms)\n',
        "                pass\n",
        f"{_SCENE} -k both_doors",
    ),
)
