"""How the process's allocator and collector of garbage behave: set once, the allocator best before any thread is started."""

from __future__ import annotations

import ctypes
import gc

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # glibc's malloc.h
_LARGEST_FROM_HEAP = 32 * 1024 * 1024  # glibc takes no larger value
_KEEP = 256 * 1024 * 1024


def keep_freed_memory(keep_bytes: int = _KEEP) -> bool:
    """Have glibc keep up to ``keep_bytes`` of what is freed at the end of its heap for what comes next, in one heap.

    A flush, and a scan, allocates and frees buffers of megabytes again and again. By default each goes back to the kernel,
    which clears every page again: a tenth of the time of archiving to many queues, a fifth of decoding records for Spark. One
    heap, since threads would each keep their own. False where there is no glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all(
        mallopt(option, value) == 1
        for option, value in (
            (_M_ARENA_MAX, 1),
            (_M_MMAP_THRESHOLD, _LARGEST_FROM_HEAP),
            (_M_TRIM_THRESHOLD, keep_bytes),
        )
    )


def give_back_freed_memory() -> None:
    """Have glibc give the kernel whatever whole pages of its heap are free, in the middle of it, too.

    For a thread that has just let go of very much, and will not ask for as much at once soon: what lies freed between what is
    still used would otherwise count until the end. Other threads wait for it where they allocate: some 30 ms for 100 MiB.
    Nothing happens where there is no glibc.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return


def calm_collector(young: int | None = None) -> None:
    """For a process that has loaded what it works with: what start-up made (modules, SDK models) is not walked over again.

    Without it the collector takes a sixth of a cold read's CPU. ``young``: new objects before those are looked at, if not as
    many as the interpreter's default, 700: a flush of very many queues makes lists of ten thousands, none of which is garbage.
    """
    gc.collect()
    gc.freeze()
    if young is not None:
        gc.set_threshold(young, *gc.get_threshold()[1:])
