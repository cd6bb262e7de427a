"""Bytes from the wire, the log and the store: what is checked before it is believed or allocated; and talk with brokers."""

from __future__ import annotations

from tests.mutants import Mutant

_CODEC_MESSAGE = "tests/unit/test_codec_message.py"
_OBJECT_CODEC = "tests/unit/test_object_codec.py"
_TAGS_ALIKE = "tiered/codec/record/tagsalike.py"
_TAGS_OF_ALIKE = "tests/unit/test_codec_properties.py::test_tags_codes_of_areas_that_are_alike"
_REMOTING_CODEC = "tests/unit/test_remoting_codec.py"

MUTANTS = (
    Mutant(
        "tiered/codec/record/frame.py",
        "    return bool((heads == (size << 32 | magic)).all())\n",
        "    return True\n",
        "tests/unit/test_record_edges.py",
    ),
    Mutant(
        "tiered/codec/record/frame.py",
        "    if rest or found != size or magic not in (MAGIC_V1, MAGIC_V2):\n",
        "    if rest or found != size:\n",
        "tests/unit/test_record_edges.py",
    ),
    Mutant(
        "tiered/codec/format/training.py",
        'checked(data, section, what="the dictionary", key=key)',
        "data",
        "tests/unit/test_block_dictionaries.py::test_a_flipped_bit_of_a_dictionary_and_another_ones_bytes_are_found",
    ),
    Mutant(
        "tiered/archive/fold/logedits.py",
        "if SectionKind.DICTIONARY in sections and",
        "if False and",
        "tests/scenes/test_dictionaries.py::test_from_the_first_dictionary_on_the_archive_requires_the_feature",
    ),
    Mutant(
        "tiered/codec/format/block.py",
        "(quick & (lengths >= plain_below), _QUICK_LEVEL, None)",
        "(quick, _QUICK_LEVEL, None)",
        "tests/unit/test_block_pieces.py::test_the_smallest_blocks_are_stored_as_they_are",
    ),
    Mutant(
        "tiered/codec/record/frame.py",
        '    wrong = sums != rows["body_crc"]\n',
        "    wrong = sums != sums\n",
        f"{_CODEC_MESSAGE}::test_verify_names_the_first_bad_record",
    ),
    Mutant(
        "tiered/codec/zstd.py",
        " | (lengths > memoryview(raw).nbytes - starts)).any()",
        ").any()",
        f"{_CODEC_MESSAGE}::test_a_sum_of_what_lies_outside_is_refused",
    ),
    Mutant(
        "tiered/codec/record/frame.py",
        "    wrong = offsets != frames.starts + base\n",
        "    wrong = offsets != offsets\n",
        f"{_CODEC_MESSAGE}::test_why_a_scan_stops",
    ),
    Mutant(
        "tiered/codec/record/frame.py",
        "        if magic not in magics or not MIN_RECORD_BYTES <= size <= max_record_bytes:\n",
        "        if magic not in magics or not MIN_RECORD_BYTES <= size:\n",
        f"{_CODEC_MESSAGE}::test_scan_limits",
    ),
    Mutant(
        "tiered/codec/record/header.py",
        "    bad = (starts < 0) | (sizes < MIN_RECORD_BYTES) | (sizes > length) | (starts > length - sizes)\n",
        "    bad = (starts < 0) | (sizes < MIN_RECORD_BYTES)\n",
        f"{_CODEC_MESSAGE}::test_decoders_refuse_boundaries_outside_the_buffer",
    ),
    Mutant(
        "tiered/codec/record/header.py",
        "        self._keep((length >= 0) & exact,",
        "        self._keep(length >= 0,",
        f"{_CODEC_MESSAGE}::test_verify_names_the_first_bad_record",
    ),
    Mutant(
        "tiered/codec/format/sections.py",
        "    if found != crc:\n",
        "    if False:\n",
        f"{_OBJECT_CODEC}::TestBlock::test_error_names_key_position_expected_and_found",
    ),
    Mutant(
        "tiered/codec/format/sections.py",
        " or version ^ complement != 0xFFFF or",
        " or",
        f"{_OBJECT_CODEC}::TestFooter::test_a_flipped_version_is_damage",
    ),
    Mutant(
        "tiered/codec/format/sections.py",
        "    if version > FORMAT_VERSION:\n",
        "    if False:\n",
        f"{_OBJECT_CODEC}::TestFooter::test_future_version_is_refused_by_number",
    ),
    Mutant(
        "tiered/codec/format/sections.py",
        "    if any(bytes(field)):\n",
        "    if False:\n",
        f"{_OBJECT_CODEC}::TestFooter::test_encryption_is_refused",
    ),
    Mutant(
        "tiered/codec/zstd.py",
        "    if not 1 <= stated <= bound or (raw_length is not None and stated != raw_length):\n",
        "    if raw_length is not None and stated != raw_length:\n",
        f"{_OBJECT_CODEC}::TestHugeClaims::test_zstd_frame",
    ),
    Mutant(
        "tiered/codec/zstd.py",
        "allow_extra_data=False",
        "allow_extra_data=True",
        f"{_OBJECT_CODEC}::TestBlock::test_bytes_after_the_frame",
    ),
    Mutant(
        "tiered/codec/format/block.py",
        '    check_length_and_crc(stored, length=len(stored), crc=crc32c, what="a block", key=key,'
        " position=position)\n",
        "",
        f"{_OBJECT_CODEC}::TestBlock::test_error_names_key_position_expected_and_found",
    ),
    Mutant(
        "tiered/codec/format/commit.py",
        "    if max(footer.seq, footer.epoch, footer.inline_length) > _LARGEST:\n",
        "    if False:\n",
        "tests/unit/test_commit_codec.py::test_lying_footers",
    ),
    Mutant(
        "tiered/codec/format/keyindex.py",
        "    for _ in range(1, _PROBES):\n",
        "    for _ in range(1, _PROBES - 1):\n",
        f"{_OBJECT_CODEC}::TestObject::test_keys",
    ),
    Mutant(
        "tiered/codec/format/keyindex.py",
        "        np.minimum(at, at - size, out=at)  #",
        "        at -= size * (at > size)  #",
        f"{_OBJECT_CODEC}::TestObject::test_a_key_is_found_by_the_probes_that_were_put_for_it",
    ),
    Mutant(
        "tiered/codec/record/header.py",
        "self.short_hosts = not (flags & (SYS_BORN_V6 | SYS_STORE_V6)).any()",
        "self.short_hosts = not (flags & SYS_BORN_V6).any()",
        "tests/unit/test_codec_layout.py::test_hosts_of_either_length_side_by_side",
    ),
    Mutant(
        "tiered/codec/format/keyindex.py",
        "        if int(self._bits.sum()) != 8 * len(field):\n",
        "        if False:\n",
        f"{_OBJECT_CODEC}::TestHugeClaims::test_key_filter_counts",
    ),
    Mutant(
        "tiered/codec/remoting/frame.py",
        "    if length > max_frame_bytes:\n",
        "    if False:\n",
        f"{_REMOTING_CODEC}::test_lengths_are_checked_before_anything_is_kept",
    ),
    Mutant(
        "tiered/codec/remoting/frame.py",
        "    if length < PREFIX_BYTES:\n",
        "    if False:\n",
        f"{_REMOTING_CODEC}::test_lengths_are_checked_before_anything_is_kept",
    ),
    Mutant(
        "tiered/codec/remoting/codes.py",
        "    if value is None or not -(1 << bits - 1) <= value < 1 << bits - 1:\n",
        "    if value is None:\n",
        "tests/unit/test_gateway_answers.py::TestPop::test_strange_answers_pass",
    ),
    Mutant(
        "tiered/codec/format/commit.py",
        "    if len(raw) > MAX_EDIT_BYTES:\n",
        "    if False:\n",
        "tests/unit/test_commit_codec.py -k no_reader_would_accept",
    ),
    Mutant(
        "tiered/codec/record/layout.py",
        "_STORE_TIME_AT + _V6_MORE * ((sys_flag & SYS_BORN_V6) >> 4)\n",
        "_STORE_TIME_AT + _V6_MORE * ((sys_flag & SYS_STORE_V6) >> 5)\n",
        "tests/unit/test_codec_layout.py::test_places_that_move",
    ),
    Mutant(
        "tiered/codec/record/layout.py",
        "    if len(record) < _BOTH_OFFSETS.size:\n        return None\n",
        "",
        "tests/unit/test_codec_layout.py::test_too_few_bytes_have_no_field",
    ),
    Mutant(
        "tiered/codec/record/walk.py",
        "        if not least <= length <= size - position:\n",
        "        if length < least:\n",
        "tests/unit/test_codec_layout.py::test_a_walk_ends_at_what_cannot_be_a_record",
    ),
    Mutant(
        "tiered/codec/remoting/lenientjson.py",
        """rb'"[^"\\\\]*(?:\\\\.[^"\\\\]*)*"?|([{,]""",
        """rb'~|([{,]""",
        "tests/unit/test_remoting_json.py::test_what_looks_like_a_key_inside_a_string",
    ),
    Mutant(
        "tiered/broker/client.py",
        "        self._cut = None if isinstance(error, TimeoutError) else error\n        self.close()\n",
        "        self._cut = None if isinstance(error, TimeoutError) else error\n",
        "tests/unit/test_replay_client.py::test_no_answer_in_time_and_the_connection_is_given_up",
    ),
    Mutant(
        "tiered/broker/client.py",
        "            if not answer.is_response:",
        "            if False:",
        "tests/unit/test_replay_client.py::test_requests_of_the_broker_and_answers_to_nobody_are_passed_over",
    ),
    Mutant(
        "tiered/broker/send.py",
        "        return name in self.names or name.startswith(self.prefixes)\n",
        "        return name in self.names\n",
        "tests/unit/test_broker_send.py::test_another_delivery_keeps_what_was_noted_on_the_way_and_a_new_message_begins_anew",
    ),
    Mutant(
        "tiered/codec/record/lite.py",
        "    whole = named.count == numbered.count\n",
        "    whole = named.count >= numbered.count\n",
        "tests/unit/test_lite_places.py::test_places_count_as_brokers_dispatch_them",
    ),
    Mutant(
        "tiered/codec/record/lite.py",
        "    kept[np.unique(place, return_index=True)[1]] = True\n",
        "    kept[:] = True\n",
        "tests/unit/test_lite_places.py::test_places_count_as_brokers_dispatch_them",
    ),
    Mutant(
        _TAGS_ALIKE,
        "len(areas) * len(places) and right.all():",
        "len(areas) * len(places):",
        _TAGS_OF_ALIKE,
    ),
    Mutant(
        _TAGS_ALIKE,
        "    if np.count_nonzero(marks) == len(areas) * len(places) and right.all():",
        "    if right.all():",
        _TAGS_OF_ALIKE,
    ),
    Mutant(_TAGS_ALIKE, "        open_rows &= ~named\n", "", _TAGS_OF_ALIKE),
)
