"""The allocator's settings are taken where there is a glibc; the collector's everywhere."""

from __future__ import annotations

import platform
import subprocess
import sys

from tiered.allocator import keep_freed_memory


def test_told_whether_the_allocator_took_it() -> None:
    assert keep_freed_memory() is (platform.libc_ver()[0] == "glibc")


def test_what_start_up_made_is_not_walked_over_again_and_young_objects_only_where_there_are_many() -> None:
    look = "import gc; from tiered.allocator import calm_collector; calm_collector(50_000)"
    told = "print(gc.get_freeze_count() > 1000, *gc.get_threshold())"
    done = subprocess.run(
        [sys.executable, "-c", f"{look}; {told}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[:2] == ["True", "50000"]


def test_freed_pages_between_what_is_used_go_back_to_the_kernel_where_there_is_a_glibc() -> None:
    look = """
from tiered.allocator import give_back_freed_memory, keep_freed_memory
def resident():
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1]) >> 10
keep_freed_memory()
pieces = [b"x" * (1 << 20) for _ in range(64)]
last = b"x" * (1 << 20)
del pieces
before = resident()
give_back_freed_memory()
print(before - resident())
"""
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    expected = 60 if platform.libc_ver()[0] == "glibc" else 0
    assert int(done.stdout) >= expected
