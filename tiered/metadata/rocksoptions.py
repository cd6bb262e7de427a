"""How the engine is set up: memory within a bound, and how what lies on the disk is compressed."""

from __future__ import annotations

import rocksdict

_OPEN_FILES = 256
_BLOCK_BYTES = 16 * 1024
_SMALL_BLOCK_BYTES = 4 * 1024
YOUNG_FILES = 16
"""Memtables on disk before they are merged into what is below them. Keys of a commit lie anywhere among all queues, so each
merge writes all of it anew: with 4, the engine's default, that took as much CPU as all look-ups. Each is one more place that
a walk begins at."""
SELDOM_MERGED = 48
"""The same, of a store that is walked over now and then, and whose memtables are small."""


class EngineOptions:
    """The options of one database, and of each of its families of columns.

    Three quarters of ``cache_bytes`` are for the memtables, one for the block cache: commits of many queues read what they are
    about to write, so what a block cache forgets costs a block, and a memtable that is full too soon a merge of everything.
    Where entries are asked for singly: a quarter, half, and the rest is headroom. ``young_files``: as ``YOUNG_FILES``.
    """

    def __init__(
        self, cache_bytes: int, young_files: int = YOUNG_FILES, *, read_one_by_one: bool = False
    ) -> None:
        """``read_one_by_one``: entries have little in common with those beside them, and are asked for singly."""
        self._memtables_bytes = cache_bytes // 4 if read_one_by_one else cache_bytes * 3 // 4
        self._young_files = young_files
        self._blocks = rocksdict.BlockBasedOptions()
        blocks_bytes = cache_bytes // (2 if read_one_by_one else 4)
        self._blocks.set_block_cache(rocksdict.Cache(max(512 * 1024, blocks_bytes)))
        self._blocks.set_block_size(_SMALL_BLOCK_BYTES if read_one_by_one else _BLOCK_BYTES)
        self._blocks.set_bloom_filter(10, False)
        # Beside the cache, some two bytes a key of the files that are open: in it, look-ups at random among a million queues
        # throw them out again and again, which takes a third of a look-up's time.
        self._blocks.set_cache_index_and_filter_blocks(False)
        self.scanned = self._family()
        # Young levels, too: a fold that is merged and sealed stays so small that it lives in them.
        self.scanned.set_compression_type(rocksdict.DBCompressionType.zstd())  # of runs, a fifth is left
        if read_one_by_one:
            self.scanned.set_compression_type(rocksdict.DBCompressionType.lz4())
        self.points = self._family()
        self.points.set_compression_type(rocksdict.DBCompressionType.lz4())  # a third faster to look up
        _for_the_database(self.scanned, cache_bytes, self._memtables_bytes)

    def _family(self) -> rocksdict.Options:
        options = rocksdict.Options(raw_mode=True)
        options.set_write_buffer_size(max(256 * 1024, self._memtables_bytes // 3))
        options.set_max_write_buffer_number(3)
        options.set_level_zero_file_num_compaction_trigger(self._young_files)
        # As many more as the engine's defaults leave before writes are slowed, and before they wait.
        options.set_level_zero_slowdown_writes_trigger(self._young_files + 16)
        options.set_level_zero_stop_writes_trigger(self._young_files + 32)
        options.set_block_based_table_factory(self._blocks)
        return options


def _for_the_database(options: rocksdict.Options, cache_bytes: int, memtables_bytes: int) -> None:
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_db_write_buffer_size(max(768 * 1024, memtables_bytes))
    options.set_max_background_jobs(2)
    options.set_max_open_files(_OPEN_FILES)
    options.set_max_total_wal_size(max(1 << 20, cache_bytes))
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1 << 20)
    options.set_stats_dump_period_sec(0)
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.point_in_time())
