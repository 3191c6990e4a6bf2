"""Settings of the C library's allocator for a process that is small most of the time: a snapshot of many leases takes
megabytes, and glibc keeps what was freed in the middle of its heap."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of malloc.h
_BYTES = 64 << 10


def give_back_early() -> bool:
    """Large blocks are given back when they are freed, and all threads share one heap. False: it isn't glibc."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return False
    options = ((_TRIM_THRESHOLD, _BYTES), (_MMAP_THRESHOLD, _BYTES), (_ARENA_MAX, 1))
    return all(set_option(option, value) for option, value in options)
