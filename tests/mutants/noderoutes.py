"""Routes that name read nodes: who is named and sent, on whose word a node answers, who is sent back, who is lost."""

from __future__ import annotations

from tests.mutants import Mutant

_DIRECTING = "tests/unit/test_gateway_directing.py"
_DOOR = "tests/unit/test_node_door.py"
_NODE = "tests/scenes/test_node_clients.py"
_SENT = "tiered/gateway/pull/sent.py"
_CLIENTS = "tiered/node/clients.py"
_SENDS = "tiered/gateway/pull/directing.py"

MUTANTS = (
    Mutant(
        _SENDS,
        "        if not self._on or self.problem() is not None:\n            return {}\n",
        "        if not self._on:\n            return {}\n",
        f"{_DIRECTING}::test_nobody_is_sent_while_it_is_not_known_that_the_broker_is_open",
    ),
    Mutant(
        _SENDS,
        "        if not tick or self.problem() is not None:\n",
        "        if not tick:\n",
        f"{_DIRECTING}::test_nobody_is_sent_while_it_is_not_known_that_the_broker_is_open",
    ),
    Mutant(
        _SENDS,
        "        return following < deep and known is not None and following < known.max_offset\n",
        "        return known is not None and following < known.max_offset\n",
        f"{_DIRECTING}::test_who_is_not_sent",
    ),
    Mutant(
        _SENDS,
        "following < deep and known is not None and following < known.max_offset\n",
        "following < deep and known is not None\n",
        f"{_DIRECTING}::test_what_the_archive_does_not_have_is_not_a_nodes",
    ),
    Mutant(
        _SENDS,
        "if request.language != JAVA or ACCESS_KEY in ext",
        "if request.language != JAVA",
        f"{_DIRECTING}::test_who_is_not_sent",
    ),
    Mutant(
        _SENDS,
        "& 0x3FFE_FFFE) | 0x4000_0001",
        "& 0x3FFF_FFFE) | 0x4000_0001",
        f"{_DIRECTING}::test_no_node_shares_the_masters_bucket_in_a_table_of_any_size",
    ),
    Mutant(
        _SENDS,
        "        self.came(request, connection)  # those",
        "        # those",
        f"{_DIRECTING}::test_where_the_brokers_answer_stands_in_a_consumer_is_seen_too",
    ),
    Mutant(
        _SENT,
        "        if offset != sent.offset:\n",
        "        if True:\n",
        f"{_DIRECTING}::test_who_got_nothing_stays_for_longer_each_time",
    ),
    Mutant(
        _SENT,
        "                    self._lose(sent, now)\n",
        "                    pass\n",
        f"{_DIRECTING}::test_a_node_that_a_machine_cannot_reach_is_not_named_to_it",
    ),
    Mutant(
        _SENT,
        "        self._peers.tell(LOST, (host, sent.node), seconds)\n",
        "",
        f"{_DIRECTING}::test_workers_tell_each_other_whom_they_lost",
    ),
    Mutant(
        _SENT,
        "        host = sent.host if seen else EVERYBODY",
        "        host = sent.host",
        f"{_DIRECTING}::test_who_asks_for_routes_by_another_address_is_told_with_everybody",
    ),
    Mutant(
        "tiered/gateway/answers/hearing.py",
        "                self._sent.hear(key[0], key[1], value)\n",
        "                pass\n",
        f"{_DIRECTING}::test_workers_tell_each_other_whom_they_lost",
    ),
    Mutant(
        "tiered/gateway/answers/hearing.py",
        "                self._sent.hear_routed(key[0])\n",
        "                pass\n",
        f"{_DIRECTING}::test_workers_tell_each_other_who_asks_for_routes_now_and_then",
    ),
    Mutant(
        _SENT,
        '        self.hear("", "", START_SECONDS)\n',
        "",
        "tests/property/test_route_histories.py::test_whatever_happens_everything_comes_once_and_in_order",
    ),
    Mutant(
        _SENT,
        "        self._counts[sent.node] -= sent.counted\n",
        "",
        f"{_DIRECTING}::test_an_answer_from_the_archive_names_the_node_that_has_the_queue",
    ),
    Mutant(
        "tiered/gateway/answers/answers.py",
        "        self.directing.sent.closed(connection)\n",
        "",
        f"{_DIRECTING}::test_who_reads_at_a_node_or_is_gone_is_not_lost",
    ),
    Mutant(
        "tiered/gateway/answers/answers.py",
        "            self.directing.came(request, connection)\n",
        "            pass\n",
        f"{_DIRECTING}::test_who_came_back_for_good_is_not_lost",
    ),
    Mutant(
        "tiered/gateway/routes/rewriting.py",
        "        if master is None or master[2] not in masters:\n",
        "        if master is None:\n",
        f"{_DIRECTING}::test_only_the_master_of_the_archived_broker_gets_nodes",
    ),
    Mutant(
        "tiered/gateway/routes/nameserver.py",
        "            or request.language != JAVA\n",
        "",
        f"{_DIRECTING}::test_only_routes_for_javas_clients_name_nodes",
    ),
    Mutant(
        "tiered/gateway/nodes/fleet.py",
        "node.beat is not None and node.beat.clients and node.standing(now)[0] is Standing.LIVE",
        "node.beat is not None and node.beat.clients",
        f"{_DIRECTING}::test_a_node_that_dies_is_named_no_more_and_nobody_is_sent_there",
    ),
    Mutant(
        "tiered/gateway/knowledge/openbroker.py",
        'if value.lower() != "false")',
        'if value.lower() == "true")',
        f"{_DIRECTING}::test_what_a_brokers_configuration_says",
    ),
    Mutant(
        _CLIENTS,
        "        if said is None or not said <= now < said + vouch.hold_ms / 1000:\n",
        "        said = now\n        if said is None:\n",
        f"{_DOOR}::test_a_word_that_waited_while_the_node_hung_is_none",
    ),
    Mutant(
        _CLIENTS,
        "vouch is None or not self.wanted or vouch.archive_id != archive_id:\n",
        "vouch is None or not self.wanted:\n",
        f"{_DOOR}::test_a_word_of_another_archive_is_none_and_takes_nothing_back",
    ),
    Mutant(
        _CLIENTS,
        "not pull.offset < made.next_offset < made.max_offset:\n",
        "not pull.offset < made.next_offset:\n",
        f"{_DOOR}::test_the_end_of_what_is_archived_is_nobodys_end",
    ),
    Mutant(
        _CLIENTS,
        "_MASTER if over else vouch.broker_id",
        "vouch.broker_id",
        f"{_DOOR}::test_everybody_is_back_at_the_gateway_once_in_a_while",
    ),
    Mutant(
        _CLIENTS,
        "or filtered or commits or is_lite",
        "or filtered or is_lite",
        f"{_DOOR}::test_what_a_node_does_not_judge_goes_back",
    ),
    Mutant(
        _CLIENTS,
        "        key = pull.group, pull.topic, pull.queue_id",
        '        key = "", pull.topic, pull.queue_id',
        f"{_DOOR}::test_groups_of_one_process_take_no_turn_from_each_other",
    ),
    Mutant(
        _CLIENTS,
        "min(offset + 1, MAX_OFFSET))",
        "offset)",
        f"{_DOOR}::test_who_is_sent_back_loses_nothing_and_takes_nothing_for_the_end",
    ),
    Mutant(
        "tiered/node/answers.py",
        "            stays = self._state() == LIVE and not turned_away\n",
        "            stays = not turned_away\n",
        f"{_NODE}::test_a_node_that_is_not_live_sends_back",
    ),
    Mutant(
        "tiered/node/answers.py",
        "            stays = self._state() == LIVE and not turned_away\n",
        "            stays = self._state() == LIVE\n",
        f"{_NODE}::test_one_consumer_too_many_is_answered_that_it_goes_back_and_hung_up_on",
    ),
    Mutant(
        "tiered/node/server.py",
        "        answers.clients.room = lambda: self._slots.free\n",
        "",
        f"{_NODE}::test_a_node_without_room_for_connections_says_so_to_gateways",
    ),
    Mutant(
        "tiered/node/server.py",
        "            if seconds <= 0 and not self._tasks:\n",
        "            if False:\n",
        f"{_NODE}::test_connections_on_which_nobody_asks_are_ended_and_gateways_are_not",
    ),
)
