"""Read nodes: what a gateway believes, whom it asks, when it reads for itself; what a node says."""

from __future__ import annotations

from tests.mutants import Mutant

_SCENE = "tests/scenes/test_read_nodes.py"
_PULL = "tests/unit/test_node_pull.py"
_FLEET = "tests/unit/test_node_fleet.py"
_PLACES = "tests/unit/test_node_placement.py"

MUTANTS = (
    Mutant(
        "tiered/gateway/nodes/reads.py",
        "    reaches = ends[1] > pull.offset if offsets else ends[0] > pull.offset\n",
        "    reaches = True\n",
        f"{_SCENE}::test_records_of_another_place_are_not_believed",
    ),
    Mutant(
        "tiered/gateway/nodes/reads.py",
        "            if answer.status is NodeStatus.ELSEWHERE:\n",
        "            if answer.status is not NodeStatus.ELSEWHERE:\n",
        f"{_SCENE}::test_a_node_of_another_archive_gives_nothing",
    ),
    Mutant(
        "tiered/gateway/nodes/fleet.py",
        "        if self.again_at > now:\n",
        "        if self.again_at > now + 60:\n",
        f"{_SCENE}::test_dead_and_hanging_nodes_are_left_alone_and_the_others_read",
    ),
    Mutant(
        "tiered/gateway/nodes/reads.py",
        "        if len(self.fleet) and (pull.row_filter is None or wanted is not None):\n",
        "        if False:\n",
        f"{_SCENE}::test_reads_by_nodes_are_the_readers_own",
    ),
    Mutant(
        "tiered/gateway/nodes/placement.py",
        "xxh3_64(key + node.encode())",
        "xxh3_64(node.encode())",
        f"{_PLACES}::test_everybody_computes_the_same_and_all_nodes_have_a_share",
    ),
    Mutant(
        "tiered/codec/remoting/nodepull.py",
        'if fields.get(BODY_SUM) != f"{crc32c(answer.body):08x}":',
        "if BODY_SUM not in fields:",
        f"{_PULL}::test_every_flipped_bit_of_a_body_is_found",
    ),
    Mutant(
        "tiered/node/answers.py",
        "        if place is not None and place.archive_id != pull.archive_id:\n",
        "        if place is not None and False:\n",
        f"{_SCENE}::test_a_node_of_another_archive_gives_nothing",
    ),
    Mutant(
        "tiered/node/answers.py",
        "        if place is None or place.commit < pull.commit:\n            await",
        "        if place is None or place.commit < 0:\n            await",
        f"{_SCENE}::test_a_node_comes_to_the_commit_that_the_gateway_knows",
    ),
    Mutant(
        "tiered/store/follower.py",
        "            look = self.follow_async(force=True)\n            yield look\n            look.result()\n",
        "            look = self.follow_async()\n            yield look\n            look.result()\n",
        f"{_SCENE}::test_a_node_comes_to_the_commit_that_the_gateway_knows",
    ),
    Mutant(
        "tiered/node/server.py",
        "            budget.give_back(aside)\n",
        "            pass\n",
        f"{_SCENE}::test_many_reads_at_once_within_small_bounds_all_come",
    ),
    Mutant(
        "tiered/node/server.py",
        "            if not self._tasks:\n                self._transport.close()\n",
        "            self._transport.close()\n",
        f"{_SCENE}::test_a_node_that_stops_answers_what_it_was_asked",
    ),
    Mutant(
        "tiered/gateway/nodes/phi.py",
        "        late = now - max(self._last, self._seen) - mean - self._grace\n",
        "        late = now - max(self._last, self._seen) - self._grace\n",
        "tests/unit/test_node_phi.py::test_phi_is_what_the_normal_distribution_says",
    ),
    Mutant(
        "tiered/gateway/nodes/fleet.py",
        "            if node.away is None and phi > self._most_phi:\n",
        "            if False:\n",
        f"{_FLEET}::test_a_node_that_hangs_is_taken_out_and_comes_back",
    ),
    Mutant(
        "tiered/gateway/nodes/fleet.py",
        "                node.phi.slept(late)\n",
        "                pass\n",
        f"{_FLEET}::test_a_gateway_that_slept_takes_nobody_out",
    ),
    Mutant(
        "tiered/gateway/nodes/fleet.py",
        "        if common_wire(low, high) is None:\n",
        "        if False:\n",
        f"{_FLEET}::test_nodes_of_other_versions",
    ),
    Mutant(
        "tiered/gateway/nodes/fleet.py",
        "        if DRAINING in (own, self.place.state):\n",
        "        if own == DRAINING:\n",
        f"{_FLEET}::test_one_that_drains_or_joins_is_not_asked_whoever_says_so",
    ),
    Mutant(
        "tiered/gateway/nodes/bounded.py",
        "        if under_way[name] < bound(",
        "        if under_way[name] <= bound(",
        "tests/unit/test_node_bounded.py::test_nobody_ever_has_more_than_its_bound",
    ),
    Mutant(
        "tiered/gateway/nodes/slow.py",
        "            if room > len(slow):\n",
        "            if True:\n",
        "tests/unit/test_node_slow.py::test_never_more_than_half_are_slow_and_the_slowest_first",
    ),
    Mutant(
        "tiered/daemon/following.py",
        "            self._failed(error)\n",
        "            self._saw(Members())\n",
        "tests/unit/test_node_announcing.py::test_a_bucket_that_answers_503_for_a_minute_leaves_the_last_known_set",
    ),
    Mutant(
        "tiered/daemon/announcing.py",
        "anew=not self._was_lost",
        "anew=True",
        "tests/unit/test_node_announcing.py::test_two_at_one_address_do_not_take_the_name_from_each_other_for_ever",
    ),
    Mutant(
        "tiered/codec/remoting/nodepull.py",
        "        return NodeStatus.ELSEWHERE\n",
        "        return NodeStatus(said)\n",
        "tests/scenes/test_node_versions.py::test_a_status_that_is_not_known_has_the_gateway_read_itself",
    ),
    Mutant(
        "tiered/node/server.py",
        "        if request.code == RequestCode.HEART_BEAT and self._room.is_set():\n",
        "        if False:\n",
        "tests/scenes/test_node_versions.py::test_a_busy_node_answers_beats_before_its_reads",
    ),
    Mutant(
        "tiered/gateway/nodes/reads.py",
        "            node.phi.seen(self._clock.monotonic())\n",
        "            pass\n",
        "tests/scenes/test_node_versions.py::test_who_answers_reads_is_not_silent",
    ),
    Mutant(
        "tiered/node/server.py",
        "            if self.answers.reads != reads:\n",
        "            if False:\n",
        "tests/scenes/test_node_versions.py::test_a_draining_node_answers_until_gateways_have_turned_away",
    ),
    Mutant(
        "tiered/daemon/following.py",
        "            self._failed(Unavailable(",
        "            raise KeyError(Unavailable(",
        "tests/unit/test_node_announcing.py::test_a_surprise_of_a_driver_is_said_and_ends_nothing",
    ),
    Mutant(
        "tiered/fetch/answer.py",
        'memoryview(data).cast("B")',
        "memoryview(data)",
        f"{_SCENE}::test_reads_by_nodes_are_the_readers_own",
    ),
)
