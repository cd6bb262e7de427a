"""Files in the making on a disk that is full: the error says so, and no other one takes its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiered.archive.rewrite.spool import Spool
from tiered.errors import Unavailable


@pytest.mark.parametrize("sizes", [(100, 1 << 20), (100,)], ids=["as it is written", "at the end"])
def test_a_full_disk_is_said_whatever_is_left_in_the_buffer(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    def write() -> None:
        with Spool(str(tmp_path)) as spool:
            spool._file.close()
            spool._file = open("/dev/full", "r+b")  # noqa: SIM115 - the spool closes it
            for size in sizes:
                spool.write(bytes(size))
            spool.parts()

    with pytest.raises(Unavailable, match="make room"):
        write()
