"""What the gateway must not serve, pass on or keep silent about; what replay says of groups that nobody watches."""

from __future__ import annotations

from tests.mutants import Mutant

_SAME = "tests/unit/test_gateway_samebroker.py"
_RIGHTS = "tests/unit/test_gateway_rights.py"
_LOG = "tests/unit/test_gateway_log.py"
_AT_ONCE = "tests/unit/test_gateway_pull_at_once.py"
_ON_THE_WAY = "tests/integration/test_gateway_at_once.py"
_READY = "tests/unit/test_gateway_ready.py"
_UNWATCHED = "tests/unit/test_replay_unwatched.py"

MUTANTS = (
    Mutant(
        "tiered/gateway/transport/session.py",
        "        if held.stands_in and self._at_once(held):",
        "        if False:",
        f"{_ON_THE_WAY}::test_they_come_without_the_broker_and_without_a_task",
    ),
    Mutant(
        "tiered/gateway/transport/session.py",
        "        if self.closed or not self.ready:\n            return False\n        aside",
        "        aside",
        f"{_ON_THE_WAY}::test_a_client_that_takes_nothing_is_made_a_few_and_read_no_further",
    ),
    Mutant(
        "tiered/gateway/transport/session.py",
        "        if self.answering >= ANSWERING_PER_CONNECTION:",
        "        if False:",
        f"{_ON_THE_WAY}::test_a_client_that_takes_nothing_is_made_a_few_and_read_no_further",
    ),
    Mutant(
        "tiered/gateway/pull/cold.py",
        "        if request.code != RequestCode.PULL_MESSAGE:  # of the other one",
        "        if False:  # of the other one",
        f"{_AT_ONCE} -k where_rights_are_asked_for",
    ),
    Mutant(
        "tiered/gateway/pull/cold.py",
        "        if not look.done() or look.exception() is not None:",
        "        if not look.done():",
        f"{_AT_ONCE} -k look_failed",
    ),
    Mutant(
        "tiered/gateway/pull/cold.py",
        "        if not (self._filters.is_unfiltered(pull) and self._asking.is_same(connection)):",
        "        if not self._filters.is_unfiltered(pull):",
        f"{_AT_ONCE} -k whose_the_archive_is",
    ),
    Mutant(
        "tiered/gateway/pull/cold.py",
        "        if result.max_offset > bounds.max_offset >= 0 or following <= pull.offset:",
        "        if following <= pull.offset:",
        f"{_AT_ONCE} -k longer_than_the_brokers",
    ),
    Mutant(
        "tiered/gateway/nodes/reads.py",
        "        return None if len(self.fleet) else self._archive.get_message_at_once(pull)",
        "        return self._archive.get_message_at_once(pull)",
        f"{_AT_ONCE} -k read_nodes",
    ),
    Mutant(
        "tiered/gateway/answers/stats.py",
        "        except Differs:\n            lacking.add",
        "        except TieredError:\n            lacking.add",
        "tests/unit/test_gateway_unchecked.py -k no_number",
    ),
    Mutant(
        "tiered/gateway/pull/litequeues.py",
        "            if end is not None and result.status in _NOTHING:\n",
        "            if result.status in _NOTHING:\n",
        "tests/unit/test_gateway_lite.py -k never_will_be",
    ),
    Mutant(
        "tiered/gateway/knowledge/asking.py",
        "        if self._broker is None or self.is_same(connection):\n",
        "        if True:\n",
        f"{_SAME}::TestInstalledAnew",
    ),
    Mutant(
        "tiered/gateway/knowledge/samebroker.py",
        "            broker.agreed |= for_whom & broker.waiting\n",
        "            broker.agreed |= set(range(1000))\n",
        f"{_SAME}::TestInstalledAnew::test_a_connection_from_before_says_nothing_about_the_next",
    ),
    Mutant(
        "tiered/gateway/knowledge/samebroker.py",
        "        if end > place:\n",
        "        if False:\n",
        f"{_SAME}::TestNotEverythingIsThere::test_a_lost_tail_until_the_archiver_has_rewound",
    ),
    Mutant(
        "tiered/gateway/knowledge/samebroker.py",
        "            if decode_message(first).store_timestamp >= newest.message.store_timestamp:\n",
        "            if True:\n",
        f"{_SAME}::TestInstalledAnew::test_nothing_of_the_former_life_is_served",
    ),
    Mutant(
        "tiered/gateway/knowledge/samebroker.py",
        "                if known.lineage < 0 or known.error is not None:\n",
        "                if known.lineage < 0 and known.error is None:\n",
        f"{_SAME}::TestInstalledAnew::test_nobody_asks_and_it_is_seen_all_the_same",
    ),
    Mutant(
        "tiered/gateway/knowledge/samebroker.py",
        '            if outcome == "differs":\n                broker.agreed.clear()\n',
        "            broker.agreed.clear()\n",
        f"{_SAME}::TestItCannotBeSeen::test_it_does_not_touch_connections_that_were_compared",
    ),
    Mutant(
        "tiered/gateway/knowledge/samebroker.py",
        "        if archived.record[:PEEK_BYTES] != heard.head:\n",
        "        if False:\n",
        f"{_SAME}::TestItCannotBeSeen::test_one_of_another_life_shows_that",
    ),
    Mutant(
        "tiered/gateway/knowledge/samebroker.py",
        "                for_whom = set(await self._by_what_was_heard(broker, refusal))\n",
        "                await self._by_what_was_heard(broker, refusal)\n                for_whom = set(range(1000))\n",
        f"{_SAME}::TestItCannotBeSeen::test_one_from_before_a_connection_says_nothing_about_it",
    ),
    Mutant(
        "tiered/gateway/answers/offsets.py",
        "        await self._asking.require_same(connection, self._asking.call_seconds)\n",
        "",
        f"{_SAME}::TestInstalledAnew::test_no_other_question_is_answered_from_it",
    ),
    Mutant(
        "tiered/gateway/knowledge/asking.py",
        "        self._limit = CALL_LIMIT if call_seconds <= pull_seconds else PULL_LIMIT\n",
        "        self._limit = PULL_LIMIT\n",
        "tests/unit/test_gateway_answers.py -k which_setting_bounds_it",
    ),
    Mutant(
        "tiered/gateway/answers/lookup.py",
        '            if request.ext.get("topic") in (None, "", topic) and self._served(topic):\n',
        "            if self._served(topic):\n",
        f"{_RIGHTS}::TestWhatAViewMayShow::test_not_another_topic_s_record",
    ),
    Mutant(
        "tiered/gateway/answers/lookup.py",
        '            if request.ext.get("topic") in (None, "", topic) and self._served(topic):\n',
        '            if request.ext.get("topic") in (None, "", topic):\n',
        f"{_RIGHTS}::TestWhatAViewMayShow",
    ),
    Mutant(
        "tiered/gateway/answers/lookup.py",
        "                if not self._rights.may_read(request.ext, topic):\n",
        "                if False:\n",
        f"{_RIGHTS}::TestEvidence",
    ),
    Mutant(
        "tiered/gateway/knowledge/rights.py",
        "            if 0 < len(topic) <= MAX_NAME and not topic.startswith(_OWN_RULES):\n",
        "            if 0 < len(topic) <= MAX_NAME:\n",
        f"{_RIGHTS}::TestEvidence::test_a_topic_of_a_group_proves_nothing",
    ),
    Mutant(
        "tiered/gateway/knowledge/rights.py",
        "        return self._granted.get((key, topic), 0.0) > self._clock.monotonic()\n",
        "        return (key, topic) in self._granted\n",
        f"{_RIGHTS}::TestEvidence::test_what_the_broker_accepts_is_evidence",
    ),
    Mutant(
        "tiered/gateway/transport/fronts.py",
        "        await asyncio.gather(*self._tasks, return_exceptions=True)\n",
        "        await asyncio.gather(*left, *self._tasks, return_exceptions=True)\n",
        "tests/unit/test_gateway_listeners.py -k never_says_that_it_is_gone",
    ),
    Mutant(
        "tiered/gateway/answers/answers.py",
        "        if connection.broker_name == self._broker:  # another one has accounts of its own\n",
        "        if True:\n",
        f"{_RIGHTS}::TestEvidence::test_what_another_broker_accepts_is_not",
    ),
    Mutant(
        "tiered/gateway/answers/brokernames.py",
        "            if unsaid is not None:\n",
        "            if True:\n",
        f"{_LOG}::test_other_brokers_names",
    ),
    Mutant(
        "tiered/gateway/pull/cold.py",
        "        key = (queue, end)\n",
        "        key = (queue, start)  # type: ignore[assignment]\n",
        f"{_LOG}::test_one_hole_is_one_line_wherever_it_is_asked_for",
    ),
    Mutant(
        "tiered/gateway/knowledge/positions.py",
        "            self._told.popitem(last=False)\n",
        "            self._told.clear()\n",
        "tests/unit/test_gateway_knowledge.py::test_of_many_queues_those_that_were_told_last_stay_told",
    ),
    Mutant(
        "tiered/gateway/knowledge/minimums.py",
        "            self._known.popitem(last=False)\n",
        "            self._known.clear()\n",
        "tests/unit/test_gateway_knowledge.py::test_of_many_minimums_those_that_were_heard_last_stay",
    ),
    Mutant(
        "tiered/daemon/gateway.py",
        "        return ready and self._archive.was_open and self._same.problem is None, ",
        "        return ready and self._same.problem is None, ",
        f"{_READY}::test_not_before_the_archive_is_open",
    ),
    Mutant(
        "tiered/replay/watch.py",
        "        self._unwatched.look(self._broker, offsets, facts, pairs, aged)\n",
        "",
        f"{_UNWATCHED}::test_a_pattern_that_does_not_fit",
    ),
    Mutant(
        "tiered/replay/unwatched.py",
        "        if topic in facts.pulls:\n",
        "        if False:\n",
        f"{_UNWATCHED}::test_who_rests_and_who_pulls_is_not_skipped",
    ),
    Mutant(
        "tiered/replay/unwatched.py",
        "                    if not self._groups.learn(broker, group).connected:\n",
        "                    if False:\n",
        f"{_UNWATCHED}::test_a_group_behind_a_proxy_whose_clients_the_broker_does_not_know",
    ),
    Mutant(
        "tiered/gateway/knowledge/alike.py",
        "before is not None and before < begin and",
        "before is not None and",
        "tests/unit/test_gateway_lite.py -k numbered_otherwise",
    ),
    Mutant(
        "tiered/gateway/knowledge/alike.py",
        "            alike = there is not None and begin is not None and there >= begin\n",
        "            alike = there is not None\n",
        "tests/unit/test_gateway_lite.py -k numbered_otherwise",
    ),
    Mutant(
        "tiered/gateway/pull/coldpull.py",
        "        low = min(following, self.bounds.min_offset) if self.bounds.min_offset >= 0 else following\n"
        '        numbers = {"nextBeginOffset": following, "minOffset": low, "maxOffset": self.bounds.max_offset}\n'
        "        return changed(self.answer, ResponseCode.PULL_RETRY_IMMEDIATELY, remark, numbers)\n",
        "        low = min(following, self.bounds.min_offset) if self.bounds.min_offset >= 0 else following\n"
        '        numbers = {"nextBeginOffset": following, "minOffset": low, "maxOffset": self.bounds.max_offset}\n'
        "        return changed(self.answer, ResponseCode.PULL_OFFSET_MOVED, remark, numbers)\n",
        "tests/unit/test_gateway_pull.py -k recorded_hole",
    ),
    Mutant(
        "tiered/gateway/pull/litequeues.py",
        "        if unchecked and not self._rights.may_read(request.ext, pull.topic):\n",
        "        if False:\n",
        "tests/unit/test_gateway_lite.py -k signed",
    ),
)
