"""Destinations of the log: what keeps a message from being lost, doubled, reordered, or sent in a circle."""

from __future__ import annotations

from tests.mutants import Mutant

_FILE = "tests/contract/test_sink_file.py"
_HTTP = "tests/contract/test_sink_http.py"
_BROKER = "tests/contract/test_sink_rocketmq.py"
_ICEBERG = "tests/contract/test_sink_iceberg.py"
_SHAPE = "tests/unit/test_sink_shaping.py"

MUTANTS = (
    Mutant(
        "tiered/sink/file/sink.py",
        "            if bytes(self._provider.get(key).data) != data:\n                raise Fenced(",
        "            if False:\n                raise Fenced(",
        f"{_FILE}::TestFileSink",
    ),
    Mutant(
        "tiered/sink/file/sink.py",
        "                position, number = self._whole(last), last.number + 1\n",
        "                position, number = last.position, last.number + 1\n",
        f"{_FILE}::test_a_position_is_read_from_few_manifests",
    ),
    Mutant(
        "tiered/sink/file/sink.py",
        "        if last.epoch > self._place.epoch:\n",
        "        if False:\n",
        f"{_FILE}::test_another_archive_and_a_later_writer_are_told_apart",
    ),
    Mutant(
        "tiered/sink/file/sink.py",
        "            self._provider.delete(stored.key)\n",
        "            pass\n",
        f"{_FILE}::test_a_file_that_no_manifest_names_is_deleted_by_the_next_opening",
    ),
    Mutant(
        "tiered/sink/webhook/sink.py",
        "                waiting += reversed(now.halves())\n",
        "                waiting += now.halves()\n",
        f"{_HTTP}::test_a_request_that_is_too_large_is_divided",
    ),
    Mutant(
        "tiered/sink/webhook/sink.py",
        "            if self._dead_letters is None or status in SETUP or status < 400:\n",
        "            if self._dead_letters is None:\n",
        f"{_HTTP}::test_rights_that_are_missing_bury_nothing",
    ),
    Mutant(
        "tiered/sink/webhook/sink.py",
        "        for request in self._gathering.rest():\n            self._deliver(request)\n",
        "        self._gathering.rest()\n",
        f"{_HTTP}::TestWebhookSink",
    ),
    Mutant(
        "tiered/sink/webhook/signing.py",
        '    mac = hmac.new(secret.encode(), b"%d." % seconds, hashlib.sha256)\n',
        '    mac = hmac.new(secret.encode(), b"", hashlib.sha256)\n',
        f"{_HTTP}::test_the_signature_is_the_documented_one",
    ),
    Mutant(
        "tiered/sink/rocketmq/sink.py",
        "            if came_from(message.properties, self._origins):\n",
        "            if False:\n",
        f"{_BROKER}::test_a_message_is_not_sent_back_where_it_was",
    ),
    Mutant(
        "tiered/sink/rocketmq/sink.py",
        "            if str(origin) in self._origins:\n",
        "            if False:\n",
        f"{_BROKER}::test_a_sink_that_would_feed_its_own_source_is_refused",
    ),
    Mutant(
        "tiered/sink/rocketmq/sink.py",
        "                if found is None:\n                    lanes[target].popleft()\n",
        "                lanes[target].popleft()\n",
        f"{_BROKER}::test_one_message_of_a_queue_is_on_its_way",
    ),
    Mutant(
        "tiered/sink/iceberg/sink.py",
        "        self._transaction: Transaction | None = None\n        self._commit(self._position)\n",
        "        self._transaction: Transaction | None = None\n",
        f"{_ICEBERG}::test_an_opening_fences_the_one_before",
    ),
    Mutant(
        "tiered/sink/iceberg/sink.py",
        "        if said is not None and said.get(WRITER) != self._writer:\n",
        "        if False:\n",
        f"{_ICEBERG}::test_an_opening_fences_the_one_before",
    ),
    Mutant(
        "tiered/sink/iceberg/sink.py",
        "        parent = snapshot.parent_snapshot_id\n",
        "        parent = None\n",
        f"{_ICEBERG}::test_what_others_do_to_the_table_does_not_hide_the_position",
    ),
    Mutant(
        "tiered/sink/shaping.py",
        "        if other != topic:\n",
        "        if False:\n",
        f"{_SHAPE}::test_two_topics_do_not_become_one",
    ),
    Mutant(
        "tiered/sink/rocketmq/reading.py",
        '            if not came_by.startswith(self._ours) or "," in came_by:\n',
        "            if not came_by:\n",
        f"{_BROKER}::test_each_kind_of_change_at_the_destination_is_seen",
    ),
    Mutant(
        "tiered/sink/rocketmq/reading.py",
        "                pulled.next = min(there.min_offset, pulled.end)\n",
        "                pulled.next = pulled.end\n",
        f"{_BROKER}::test_files_deleted_while_they_are_read_are_said",
    ),
    Mutant(
        "tiered/sink/rocketmq/reading.py",
        "                self._spread.add(queue)\n                self.ordered = False\n",
        "                pass\n",
        f"{_BROKER}::test_a_queue_that_lies_in_two_has_no_order_and_one_without_a_beginning_is_said",
    ),
)
