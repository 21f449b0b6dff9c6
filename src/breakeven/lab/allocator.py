"""The allocator as a condition of measurement: as it comes, or told to keep what is freed."""

from __future__ import annotations

import ctypes
import platform
import resource

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
"""Parameters of mallopt(3), from glibc's malloc.h."""
PROBE = 8 << 20
"""Bytes of the trial allocation: 2,048 pages, well above every default threshold."""


def keep_freed_pages() -> bool:
    """Let this process's malloc keep what is freed, for good: the allocator's second condition.

    Blocks below 1 GiB come from the heap, which is no longer trimmed below 2 GiB, and nothing is
    mapped for one allocation alone: freed pages are used again without a page fault each. Whether
    it took is tried out, because another malloc may have been preloaded over glibc's.

    Returns:
        False where the C library is not glibc, or freed pages still go back to the system.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    try:
        library = ctypes.CDLL(None)
        mallopt = library.mallopt
    except (OSError, AttributeError):
        return False
    for name, value in (
        (M_MMAP_THRESHOLD, 1 << 30),
        (M_TRIM_THRESHOLD, 2**31 - 1),
        (M_MMAP_MAX, 0),
    ):
        mallopt(name, value)
    _faults_of_a_block(library)
    return _faults_of_a_block(library) < PROBE // resource.getpagesize() // 20


def _faults_of_a_block(library: ctypes.CDLL) -> int:
    """Page faults of allocating, filling and freeing `PROBE` bytes."""
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = library.malloc(PROBE)
    if block:
        ctypes.memset(block, 1, PROBE)
    library.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
