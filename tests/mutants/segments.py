"""Records as columns and back, and the Parquet files that they lie in."""

from __future__ import annotations

from tests.mutants import Mutant

_MESSAGES = "tests/unit/test_arrow_messages.py"
_FILE = "tests/unit/test_segment_file.py"
_FETCH = "tests/unit/test_fetch_sealed.py"
_SEALED = "tests/unit/test_sealed_objects.py"

MUTANTS = (
    Mutant(
        "tiered/codec/arrow/proof.py",
        "    if made.equals(source):\n",
        "    if len(made) == len(source):\n",
        f"{_MESSAGES}::test_properties_that_a_map_does_not_hold",
    ),
    Mutant(
        "tiered/codec/arrow/proof.py",
        "    if not assemble(columns).equals(source):\n",
        "    if False:\n",
        f"{_MESSAGES}::test_a_difference_is_never_let_through",
    ),
    Mutant(
        "tiered/codec/arrow/messagerows.py",
        "        place = pa.array(np.cumsum(sound) - 1, mask=~sound)\n",
        "        place = pa.array(np.maximum(np.cumsum(sound) - 1, 0))\n",
        f"{_MESSAGES}::test_a_record_that_is_not_what_its_header_says_is_kept_whole",
    ),
    Mutant(
        "tiered/codec/arrow/columns.py",
        "    return np.sort(len(key) - 1 - first)\n",
        "    return np.sort(first)\n",
        f"{_MESSAGES}::test_properties_that_a_map_does_not_hold",
    ),
    Mutant(
        "tiered/codec/segment/footer.py",
        "    if found != stated:\n",
        "    if False:\n",
        f"{_FILE}::test_a_flipped_bit_anywhere_is_found",
    ),
    Mutant(
        "tiered/codec/segment/footer.py",
        "    at = footer.rindex(shape) + len(shape)\n",
        "    at = footer.index(shape) + len(shape)\n",
        f"{_FILE}::test_a_tag_that_looks_like_the_checksum_changes_nothing",
    ),
    Mutant(
        "tiered/codec/segment/reader.py",
        "        if len(data) != place.length or crc32c(data) != stated:\n",
        "        if len(data) != place.length:\n",
        f"{_FILE}::test_a_flipped_bit_anywhere_is_found",
    ),
    Mutant(
        "tiered/codec/segment/reader.py",
        "                page_checksum_verification=True,\n",
        "",
        f"{_FILE}::test_pages_have_checksums_of_their_own",
    ),
    Mutant(
        "tiered/codec/segment/reader.py",
        '            if values.null_count or crc != part["crc32c"] or end - begin != part["bytes"]:\n',
        "            if values.null_count:\n",
        f"{_FILE}::test_a_wrong_column_is_found_by_the_sum_of_the_run",
    ),
    Mutant(
        "tiered/codec/segment/reader.py",
        "        if found != wanted.hex():\n",
        "        if not found:\n",
        f"{_FILE}::test_swapped_row_groups_and_files_are_found",
    ),
    Mutant(
        "tiered/codec/segment/keyrows.py",
        "    block = blocks[(hashed >> 32) * len(blocks) >> 32]\n",
        "    block = blocks[hashed % len(blocks)]\n",
        f"{_SEALED}::test_filters_hold_every_key_and_few_others",
    ),
    Mutant(
        "tiered/archive/read/segments.py",
        "    return following - offsets\n",
        "    return np.ones_like(offsets)\n",
        f"{_SEALED}::test_columns_are_the_same",
    ),
    Mutant(
        "tiered/archive/read/segments.py",
        '        tail = checked(self._fetch(key, section.range), section, what="a segment\'s footer", key=key)\n',
        "        tail = self._fetch(key, section.range)\n",
        f"{_SEALED}::test_a_segment_of_the_same_object_that_was_written_again",
    ),
    Mutant(
        "tiered/archive/read/segments.py",
        "        if head != MAGIC:\n",
        "        if False:\n",
        "tests/unit/test_content.py::test_damage_behind_damage_in_a_segment",
    ),
    Mutant(
        "tiered/archive/read/objects.py",
        "    if is_segment(item):\n        raise Invalid(",
        "    if False:\n        raise Invalid(",
        f"{_SEALED}::test_key_indexes_of_our_own_format_are_refused_not_empty",
    ),
    Mutant(
        "tiered/fetch/loader.py",
        "        found.update({block.key: block for block in opened})\n",
        "        found.update({block.key: block for block in opened if block.key == ref.key})\n",
        f"{_FETCH}::test_queues_that_share_a_row_group_fetch_and_decode_it_once",
    ),
    Mutant(
        "tiered/archive/read/segments.py",
        "        share_allocator()\n",
        "",
        f"{_SEALED}::test_arrow_takes_its_memory_where_the_process_does",
    ),
    Mutant(
        "tiered/fetch/block.py",
        "    return DECODING * group.raw_length + ",
        "    return cost_bytes(ref) + ",
        f"{_FETCH}::test_a_row_group_on_its_way_is_charged_whole_and_settled",
    ),
    Mutant(
        "tiered/fetch/loader.py",
        "owner=None, stamp=0, stored_length=0, read=True)",
        "owner=None, stamp=0, stored_length=0, read=False)",
        f"{_FETCH}::test_what_nobody_asked_for_gives_way_to_read_ahead",
    ),
    Mutant(
        "tiered/codec/segment/directory.py",
        "            return 0\n        return int(self.parts",
        "            pass\n        return int(self.parts",
        f"{_FILE}::test_every_record_comes_back",
    ),
    Mutant(
        "tiered/codec/segment/cutting.py",
        "self._last.queue != part.queue and 2 * self._bytes >= self._target:\n",
        "self._last.queue != part.queue and self._bytes >= self._target:\n",
        f"{_FILE}::test_where_row_groups_are_cut",
    ),
    Mutant(
        "tiered/codec/segment/cutting.py",
        "            *last.queue, last.end_offset, last.flat_offset + last.size_bytes,\n",
        "            *last.queue, last.end_offset, part.flat_offset,\n",
        f"{_FILE}::test_rows_out_of_order_are_refused",
    ),
    Mutant(
        "tiered/codec/segment/writer.py",
        "                run, crc = run + 1, 0\n",
        "                run = run + 1\n",
        f"{_FILE}::test_runs_are_what_replace_runs_needs",
    ),
    Mutant(
        "tiered/codec/segment/footer.py",
        "    if len(end) < _END_BYTES or end[4:] != MAGIC or length > most:\n",
        "    if len(end) < _END_BYTES or end[4:] != MAGIC:\n",
        f"{_FILE}::test_lengths_are_compared_before_anything_is_allocated",
    ),
)
