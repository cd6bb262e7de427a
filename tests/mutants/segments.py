"""Records as columns and back, and the Parquet files that they lie in."""

from __future__ import annotations

from tests.mutants import Mutant

_MESSAGES = "tests/unit/test_arrow_messages.py"
_FILE = "tests/unit/test_segment_file.py"
_FETCH = "tests/scenes/test_fetch_sealed.py"
_BANDS = "tests/unit/test_segment_bands.py"
_BAND_READS = "tests/scenes/test_band_reads.py"
_SEALED = "tests/scenes/test_sealed_objects.py"

MUTANTS = (
    Mutant(
        "tiered/codec/arrow/columns.py",
        "    return len(set(names.slice(0, several).to_pylist())) == several\n",
        "    return True\n",
        f"{_MESSAGES}::test_names_that_are_or_are_not_the_same_in_each_row",
    ),
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
        "            if values.null_count or crc != stated or end - begin != size:\n",
        "            if values.null_count:\n",
        f"{_FILE}::test_a_wrong_column_is_found_by_the_sum_of_the_run",
    ),
    Mutant(
        "tiered/codec/segment/pages.py",
        "_values(chunk.data) if leaf.repeats else rows",
        "rows",
        "tests/unit/test_segment_bands.py::test_a_made_file_says_what_its_pages_hold",
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
        "tests/scenes/test_content.py::test_damage_behind_damage_in_a_segment",
    ),
    Mutant(
        "tiered/archive/read/keytables.py",
        "        if is_segment(item):\n            raise Invalid(",
        "        if False:\n            raise Invalid(",
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
        "            and 8 * self._group_bytes >= 7 * self._target\n",
        "            and self._group_bytes >= self._target\n",
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
        "    if len(end) < END_BYTES or end[4:] != MAGIC or length > most:\n",
        "    if len(end) < END_BYTES or end[4:] != MAGIC:\n",
        f"{_FILE}::test_lengths_are_compared_before_anything_is_allocated",
    ),
    Mutant(
        "tiered/codec/segment/reader.py",
        "    if len(page) != length or (length and crc32c(page) != stated):\n",
        "    if len(page) != length:\n",
        f"{_BANDS}::test_a_flipped_bit_in_any_page_of_a_band_is_found",
    ),
    Mutant(
        "tiered/codec/segment/reader.py",
        "            if end - first == 1:\n",
        "            if end - first:\n",
        f"{_BANDS}::test_damage_takes_no_neighbour_with_it",
    ),
    Mutant(
        "tiered/codec/segment/reader.py",
        '            stop = first + max(1, int(np.searchsorted(sizes, TOGETHER_BYTES, "right")))\n',
        "            stop = end\n",
        f"{_BANDS}::test_neighbours_are_decoded_together",
    ),
    Mutant(
        "tiered/archive/read/segments.py",
        "                        raise found\n",
        "                        continue\n",
        f"{_BAND_READS}::test_bands_of_one_request_are_decoded_together_up_to_damage",
    ),
    Mutant(
        "tiered/archive/read/content.py",
        "                yield found if isinstance(found, Corrupt) else None\n",
        "                yield None\n",
        f"{_BAND_READS}::test_a_check_names_each_damaged_band",
    ),
    Mutant(
        "tiered/codec/segment/cutting.py",
        "            if self._group_bytes >= self._target or self._bytes >= _LARGEST * self._band_target:\n",
        "            if self._group_bytes >= self._target:\n",
        f"{_BANDS}::test_where_bands_are_cut",
    ),
    Mutant(
        "tiered/codec/segment/writer.py",
        "        if late:\n",
        "        if False:\n",
        "tests/unit/test_segment_engines.py::test_columns_without_nulls_are_declared_so_where_that_is_asked_for",
    ),
    Mutant(
        "tiered/codec/segment/writer.py",
        "            if pages is None:\n",
        "            if False:\n",
        f"{_BANDS}::test_pages_that_do_not_end_together_are_refused",
    ),
    Mutant(
        "tiered/codec/segment/writer.py",
        "        if first_rows(end, start, self._banded) != self._banded:\n",
        "        if False:\n",
        f"{_BANDS}::test_rows_of_lists_are_compared_with_the_page_index",
    ),
    Mutant(
        "tiered/archive/read/heads.py",
        "            return len(made) if sound(made) else NEVER_KEPT\n",
        "            return len(made)\n",
        f"{_BAND_READS}::test_a_head_that_was_damaged_on_its_way_is_not_kept",
    ),
    Mutant(
        "tiered/codec/segment/growing.py",
        "                pages[: self._length] = self._pages[: self._length]\n",
        "                pass\n",
        "tests/unit/test_segment_growing.py::"
        "test_what_is_taken_is_what_was_written_since_the_last_time_however_much_it_is",
    ),
    Mutant(
        "tiered/codec/segment/growing.py",
        "        self._pages, self._length = None, 0\n",
        "        self._length = 0\n",
        "tests/unit/test_segment_growing.py::"
        "test_what_is_taken_is_what_was_written_since_the_last_time_however_much_it_is",
    ),
)
