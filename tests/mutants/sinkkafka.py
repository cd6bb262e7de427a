"""The log in Kafka: what keeps a message from being lost, doubled, reordered, or given by a process that was overtaken."""

from __future__ import annotations

from tests.mutants import Mutant

_REAL = "tests/integration/test_sink_kafka_real.py"
_BACKFILL = "tests/integration/test_sink_kafka_backfill.py"
_UNIT = "tests/unit/test_sink_kafka.py"
_MESSAGES = "tests/unit/test_sink_messages.py"

MUTANTS = (
    Mutant(
        "tiered/sink/kafka/keeping.py",
        "                            kept.settle()\n",
        "",
        f"{_REAL}::test_a_queue_keeps_its_partition_when_partitions_are_added",
    ),
    Mutant(
        "tiered/sink/kafka/positions.py",
        "            if self.topics.get(target) == topic_id:\n",
        "            if True:\n",
        f"{_UNIT}::test_a_partition_of_a_queue_by_another_name_counts_while_its_topic_is_the_one",
    ),
    Mutant(
        "tiered/sink/kafka/reading.py",
        "                if message.offset() >= ends[place] - (error is None):\n",
        "                if error is not None or message.offset() >= ends[place] - 1:\n",
        f"{_REAL}::test_what_is_in_kafka_is_held_against_the_archive",
    ),
    Mutant(
        "tiered/sink/kafka/reading.py",
        '"isolation.level": "read_committed"',
        '"isolation.level": "read_uncommitted"',
        f"{_REAL}::test_what_is_in_kafka_is_held_against_the_archive",
    ),
    Mutant(
        "tiered/sink/kafka/rereading.py",
        "    if len(steps) and int(steps.min()) < 1:\n",
        "    if False:\n",
        f"{_REAL}::test_what_is_not_certain_is_not_said",
    ),
    Mutant(
        "tiered/sink/kafka/rereading.py",
        "if low <= asked[q].lowest and high",
        "if high",
        f"{_REAL}::test_what_is_not_certain_is_not_said",
    ),
    Mutant(
        "tiered/sink/kafka/hanging.py",
        "            MessageQueue(place.renamed(queue.topic), queue.queue_id): follow.next\n",
        "            queue: follow.next\n",
        f"{_UNIT}::test_a_record_is_before_the_position_by_whatever_name_it_has",
    ),
    Mutant(
        "tiered/sink/shaping.py",
        "        place = replace(place, renamed=shape.topic)\n",
        "",
        "tests/unit/test_sink_shaping.py::test_a_kind_is_told_what_topics_are_called_at_the_destination",
    ),
    Mutant(
        "tiered/sink/kafka/sink.py",
        "            end_hanging(self._producer, self._heard, hung, self._settings.seconds)\n",
        "",
        f"{_REAL}::test_records_of_a_transaction_that_kafka_forgot_are_not_committed_later",
    ),
    Mutant(
        "tiered/sink/kafka/sink.py",
        "        if owner is not None and owner.epoch < self._owner.epoch:\n",
        "        if False:\n",
        f"{_REAL}::test_an_earlier_writer_that_wakes_between_two_steps_does_not_stop_a_later_one",
    ),
    Mutant(
        "tiered/sink/kafka/keeping.py",
        "            self._forgotten = True\n",
        "            pass\n",
        f"{_REAL}::test_a_position_that_was_deleted_is_said",
    ),
    Mutant(
        "tiered/sink/kafka/reports.py",
        "        if len(routes):\n",
        "        if True:\n",
        f"{_UNIT}::test_a_flush_of_dead_letters_alone_has_no_places",
    ),
    Mutant(
        "tiered/sink/kafka/positions.py",
        "        if self.owner is None and (self.queues or self.log.physical is not None):\n",
        "        if False:\n",
        f"{_UNIT}::test_half_a_position_is_none",
    ),
    Mutant(
        "tiered/sink/kafka/sink.py",
        "            self._retold = [topic_record(name, None) for name in kept.forget(now)]\n",
        "            kept.forget(now)\n",
        f"{_REAL}::test_a_sink_that_begins_anew_gives_everything_to_new_topics",
    ),
    Mutant(
        "tiered/sink/kafka/naming.py",
        '_LEGAL = re.compile(rb"[A-Za-z0-9_-]")\n',
        '_LEGAL = re.compile(rb"[A-Za-z0-9._-]")\n',
        f"{_UNIT}::test_names_are_legal_and_usual_ones_stay",
    ),
    Mutant(
        "tiered/sink/kafka/reports.py",
        "        if len(offsets) != len(at):\n",
        "        if False:\n",
        f"{_UNIT}::test_a_report_that_did_not_come_is_no_success",
    ),
    Mutant(
        "tiered/sink/kafka/reports.py",
        "        mixed = np.append(steps != np.diff(at), False)\n",
        "        mixed = np.append(steps < 0, False)\n",
        f"{_UNIT}::test_somebody_elses_records_among_them_make_a_wide_run_once",
    ),
    Mutant(
        "tiered/sink/kafka/reports.py",
        "            self._mixed.add(place)\n",
        "            pass\n",
        f"{_UNIT}::test_somebody_elses_records_among_them_make_a_wide_run_once",
    ),
    Mutant(
        "tiered/sink/kafka/reports.py",
        "        for error, message in self._outcomes.items():\n",
        "        for error, message in ():\n",
        f"{_UNIT}::test_a_failure_of_a_record_that_is_not_asked_for_is_told_with_its_cause",
    ),
    Mutant(
        "tiered/sink/kafka/client.py",
        "        return cause if cause.txn_requires_abort() else None\n",
        "        return None\n",
        f"{_REAL}::test_a_record_that_fails_between_those_whose_offsets_are_asked_for_is_no_success",
    ),
    Mutant(
        "tiered/sink/kafka/placing.py",
        "one_by_one & ~beside",
        "one_by_one",
        f"{_UNIT}::test_somebody_elses_records_among_them_make_a_wide_run_once",
    ),
    Mutant(
        "tiered/sink/propertycolumns.py",
        "        if (written != written[0]).any():\n",
        "        if False:\n",
        f"{_MESSAGES}::test_properties_are_columns_where_all_messages_have_the_same_names",
    ),
    Mutant(
        "tiered/sink/kafka/placing.py",
        "(np.diff(queue_offset) == 1) & (np.diff(offset) == 1)",
        "(np.diff(queue_offset) == 1)",
        f"{_UNIT}::test_consecutive_messages_are_one_run",
    ),
    Mutant(
        "tiered/sink/kafka/settings.py",
        '            told["transactional.id"] = transactional_id\n',
        "            pass\n",
        f"{_UNIT}::test_every_buffer_of_the_client_is_bounded_and_secrets_are_resolved",
    ),
    Mutant(
        "tiered/sink/messages.py",
        '    columns["queue_offset"] += np.arange(',
        '    columns["queue_offset"] += 0 * np.arange(',
        f"{_MESSAGES}::test_an_inner_batch_is_taken_apart_as_consumers_do",
    ),
    Mutant(
        "tiered/codec/record/unpack.py",
        "            if size > most:\n                return None\n",
        "",
        f"{_MESSAGES}::test_bodies_are_decompressed",
    ),
    Mutant(
        "tiered/sink/kafka/sink.py",
        "                kept = self._kept(place)\n",
        "                self._kept(place)\n",
        f"{_REAL}::test_exactly_once_over_kills_of_the_process_and_of_kafka",
    ),
    Mutant(
        "tiered/sink/kafka/sink.py",
        "        if owner is not None and owner.epoch > place.epoch:\n",
        "        if False:\n",
        f"{_REAL}::test_an_earlier_writer_does_not_fence_a_later_one",
    ),
    Mutant(
        "tiered/sink/kafka/sink.py",
        "        if owner != self._owner:\n            return error\n",
        "        return error\n",
        f"{_REAL}::test_a_transaction_that_was_open_too_long_is_not_somebody_else",
    ),
    Mutant(
        "tiered/sink/kafka/routes.py",
        "        target, partition = self._kept.get(queue, (None, None))\n",
        "        target, partition = None, None\n",
        f"{_REAL}::test_a_queue_keeps_its_partition_when_partitions_are_added",
    ),
    Mutant(
        "tiered/sink/kafka/sink.py",
        "            kept.beside(whole)\n",
        "",
        f"{_BACKFILL}::test_a_queue_goes_on_in_the_partition_that_the_sink_gave_it",
    ),
    Mutant(
        "tiered/sink/kafka/sink.py",
        "            self._routes.take_over(partitions, topics)\n",
        "",
        f"{_BACKFILL}::test_a_queue_goes_on_in_the_partition_that_the_sink_gave_it",
    ),
    Mutant(
        "tiered/sink/kafka/partmaps.py",
        "self._maps[queue] = told if before is None else before.then(told)\n",
        "self._maps[queue] = told\n",
        f"{_BACKFILL}::test_attempts_that_end_anywhere_give_each_message_once",
    ),
    Mutant(
        "tiered/sink/held.py",
        "made[queue].then(told) if queue in made else told",
        "told",
        f"{_BACKFILL}::test_a_process_that_ends_between_kafka_and_the_archive",
    ),
    Mutant(
        "tiered/sink/kafka/routes.py",
        "            {q: (at.target, at.partition) for q, at in went.items() if same.get(at.target) == at.target_id},\n",
        "            {},\n",
        "tests/unit/test_sink_kafka.py::test_queues_keep_partitions_that_the_archive_remembers",
    ),
    Mutant(
        "tiered/sink/running.py",
        "            remind(opened, stored.sink_id, fold)\n",
        "",
        "tests/scenes/test_sink_mapping.py::test_a_destination_is_reminded_of_where_messages_went_before_it_is_given_more",
    ),
    Mutant(
        "tiered/sink/kafka/routes.py",
        "        check_same(\n            {name: min(known)",
        "        check_same(\n            {} and {name: min(known)",
        "tests/unit/test_sink_kafka.py::test_a_topic_made_anew_while_nobody_looked_is_refused_or_given_the_rest",
    ),
)
