"""The allocator's settings are taken where there is a glibc."""

from __future__ import annotations

import platform

from tiered.allocator import keep_freed_memory


def test_told_whether_the_allocator_took_it() -> None:
    assert keep_freed_memory() is (platform.libc_ver()[0] == "glibc")
