"""The doors of the key-value view: what a hostile client may cost, and what a writer is told."""

from __future__ import annotations

from tests.mutants import Mutant

_BODIES = "tests/unit/test_http_bodies.py"
_KV = "tests/unit/test_http_kv.py"
_CLIENT = "tests/unit/test_client.py"
_PAGES = "tests/scenes/test_kv_pages.py::test_a_page_ends_where_its_values_are_many_bytes"
_UNCLEAR = f"{_CLIENT}::test_a_write_without_a_clear_answer_is_unknown_and_sent_once"
_REFUSED = f"{_BODIES}::test_a_body_that_is_refused_writes_nothing_and_ends_the_connection"

MUTANTS = (
    Mutant(
        "tiered/http/bodies.py",
        "        if len(held) + len(piece) > most:\n",
        "        if False:\n",
        _REFUSED,
    ),
    Mutant(
        "tiered/http/bodies.py",
        '    if not chunked and int(headers.get("content-length", "0")) > most:',
        "    if False:",
        _REFUSED,
    ),
    Mutant(
        "tiered/http/bodies.py",
        '    if chunked and ("content-length" in headers or request.scope["http_version"] == "1.0"):\n',
        "    if False:\n",
        _REFUSED,
    ),
    Mutant(
        "tiered/http/bodies.py",
        "    if connection.broken_body is not None:\n",
        "    if False:\n",
        _REFUSED,
    ),
    Mutant(
        "tiered/http/bodies.py",
        "            async with asyncio.timeout(self._seconds):\n",
        "            if True:\n",
        f"{_BODIES}::test_a_body_a_drop_at_a_time_does_not_buy_time",
    ),
    Mutant(
        "tiered/http/bodies.py",
        "        if self._held + len(piece) > self._room:\n",
        "        if False:\n",
        f"{_BODIES}::test_all_bodies_together_have_so_much_room",
    ),
    Mutant(
        "tiered/http/bodies.py",
        "            self._held -= len(held)\n",
        "            pass\n",
        f"{_BODIES}::test_a_body_is_read_and_the_connection_goes_on",
    ),
    Mutant(
        "tiered/http/bodies.py",
        '    return has_body(scope) and not scope["state"].get(_WAS_READ, False)\n',
        "    return has_body(scope)\n",
        f"{_BODIES}::test_a_body_is_read_and_the_connection_goes_on",
    ),
    Mutant(
        "tiered/http/connection.py",
        "        if self._busy and self.conn.their_state is h11.SEND_BODY:\n",
        "        if False:\n",
        _REFUSED,
    ),
    Mutant(
        "tiered/http/kv/conditions.py",
        "    if len(tags) != 1 or tags[0][0] or not",
        "    if len(tags) != 1 or not",
        f"{_KV}::test_a_condition_that_is_not_understood_is_refused_and_not_left_out",
    ),
    Mutant(
        "tiered/http/kv/conditions.py",
        '    _none_of(headers, "if-unmodified-since", "use If-Match")\n',
        "",
        f"{_KV}::test_a_condition_that_is_not_understood_is_refused_and_not_left_out",
    ),
    Mutant(
        "tiered/http/kv/pages.py",
        "    if not outcome.applied:\n",
        "    if False:\n",
        f"{_KV}::test_a_lost_condition_is_412_and_says_what_is_there",
    ),
    Mutant(
        "tiered/http/kv/problems.py",
        '        error.fields.setdefault("outcome", UNKNOWN)\n',
        '        error.fields.setdefault("outcome", NOT_DONE)\n',
        f"{_KV}::test_a_failure_says_what_became_of_the_write",
    ),
    Mutant(
        "tiered/http/app.py",
        "            begun = running is not None and not running.cancel()\n",
        "            begun = False\n",
        f"{_KV}::test_a_write_that_takes_too_long_is_unknown_and_one_without_a_turn_is_not_done",
    ),
    Mutant(
        "tiered/http/kv/keys.py",
        "        if token(made).encode() == bare and len(text) in",
        "        if len(text) in",
        f"{_KV}::test_what_is_no_base64url_is_refused",
    ),
    Mutant("tiered/view/view.py", "            room -= len(entry.value)\n", "", _PAGES),
    Mutant(
        "tiered/view/view.py",
        "            if room < 0 and len(keys) > 1:\n",
        "            if False:\n",
        _PAGES,
    ),
    Mutant(
        "tiered/client/answers.py",
        '        fields.setdefault("outcome", UNKNOWN)\n',
        '        fields.setdefault("outcome", "not done")\n',
        _UNCLEAR,
    ),
    Mutant(
        "tiered/client/connections.py",
        "                outcome=UNKNOWN,\n",
        "                outcome=NOT_DONE,\n",
        _UNCLEAR,
    ),
    Mutant(
        "tiered/client/connections.py",
        '        raise http.client.HTTPException("it cannot be seen where the answer ends")\n',
        "        pass\n",
        _UNCLEAR,
    ),
    Mutant(
        "tiered/client/connections.py",
        "            if self._clock.monotonic() - since < IDLE_SECONDS and _is_quiet(connection):\n",
        "            if self._clock.monotonic() - since < IDLE_SECONDS:\n",
        f"{_CLIENT}::test_a_connection_that_the_server_ended_is_not_written_to",
    ),
    Mutant(
        "tiered/client/answers.py",
        '        if _PLAIN.issuperset(check_key(key)) and key not in (b".", b".."):\n',
        "        if True:\n",
        f"{_CLIENT}::test_every_key_arrives_as_it_is",
    ),
    Mutant(
        "tiered/client/sync.py",
        "            entry = self.get(namespace, key, LATEST)\n",
        "            entry = self.get(namespace, key)\n",
        f"{_CLIENT}::test_an_update_goes_on_until_nobody_was_faster",
    ),
    Mutant(
        "tiered/client/sync.py",
        "            except Conflict:\n",
        "            except (Conflict, Unavailable):\n",
        f"{_CLIENT}::test_an_update_whose_write_is_unknown_is_not_tried_again",
    ),
)
