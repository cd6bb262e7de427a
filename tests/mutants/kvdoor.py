"""The key-value view's door on the remoting protocol: what the broker does not see, and what is said of a write."""

from __future__ import annotations

from tests.mutants import Mutant

_SCENE = "tests/scenes/test_gateway_keyvalues.py"
_FIELDS = "tests/unit/test_kv_fields.py"

MUTANTS = (
    Mutant(
        "tiered/gateway/answers/keyvalues.py",
        '        case _ if writes and error.fields.get("outcome") == UNKNOWN:\n            return _unknown(error.told)\n',
        "",
        f"{_SCENE}::test_an_unknown_outcome_is_said_to_be_one_and_nothing_else",
    ),
    Mutant(
        "tiered/gateway/answers/keyvalues.py",
        "    after = page.after if len(taken) == len(page.entries) else taken[-1].key\n",
        "    after = page.after\n",
        f"{_SCENE}::test_lists_come_page_by_page_and_whole",
    ),
    Mutant(
        "tiered/gateway/answers/keyvalues.py",
        "        if self._at_once >= MOST_AT_ONCE:\n",
        "        if False:\n",
        f"{_SCENE}::test_too_many_at_once_are_told_to_come_again",
    ),
    Mutant(
        "tiered/gateway/answers/keyvalues.py",
        "found = self._clients[token] = self._connect(token)",
        'found = self._clients[token] = self._connect("right")',
        f"{_SCENE}::test_who_may_is_for_the_view_to_say",
    ),
    Mutant(
        "tiered/gateway/transport/pending.py",
        "        self._request = request\n        return _HELD\n",
        "        self._request = request\n        return _COPIED\n",
        f"{_SCENE}::test_put_get_delete",
    ),
    Mutant(
        "tiered/gateway/transport/pending.py",
        "        if body_bytes > MAX_OBSERVED_BODY:\n            raise Refused(\n",
        "        if False:\n            raise Refused(\n",
        f"{_SCENE}::test_a_body_that_is_too_long_ends_the_connection",
    ),
    Mutant(
        "tiered/gateway/answers/keyvalues.py",
        "Freshness.LATEST if fields.latest else Freshness.ANY, fields.max_stale_ms)",
        "Freshness.LATEST if fields.latest else Freshness.ANY)",
        f"{_SCENE}::test_how_fresh_a_read_is",
    ),
    Mutant(
        "tiered/gateway/answers/keyvalues.py",
        "    if size > LISTED_BYTES and len(keys) > 1:",
        "    if size > LISTED_BYTES * 100:",
        f"{_SCENE}::test_several_keys_at_once",
    ),
    Mutant(
        "tiered/codec/remoting/keyvalue.py",
        "        if end > len(view):\n            raise BadRequest(",
        "        if False:\n            raise BadRequest(",
        f"{_FIELDS}::test_keys_of_a_body_come_as_they_were",
    ),
    Mutant(
        "tiered/codec/remoting/keyvalue.py",
        "b64decode(text, validate=True)",
        "b64decode(text)",
        f"{_FIELDS}::test_what_is_wrong_is_named",
    ),
)
