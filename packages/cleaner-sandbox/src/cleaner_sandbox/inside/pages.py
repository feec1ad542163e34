"""A zygote's memory, arranged so that its forks cost little.

Most of what a short run costs is pages. A fork copies an entry for every page, unless a huge one replaces 512. A run
copies each page that it writes to, and has to look up each page of code anew, since a fork leaves those out. So:

- `fill_holes`: what is allocated later is put together on few pages, instead of in the holes that imports left.
- `join_mappings`: there are fewer mappings, each of which a fork has to copy.
- `own_code`: the interpreter's code is copied into huge pages of the process's own, which a fork does keep.
- `use_huge_pages`: so is the memory that modules have filled.

None of this changes what a program sees, and none is needed: where the kernel doesn't do it, runs only cost more.
"""

from __future__ import annotations

import ctypes
import platform
from itertools import pairwise

HUGE_PAGE = 1 << 21
PAGE = 4096
USED_PAGES = 128
"""Of the 512 in a huge page: with fewer in use, a copy of one's own doesn't pay."""
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25
READ_WRITE, READ_EXECUTE = 3, 5
PRIVATE_AND_EMPTY = 0x22
MOVE_TO = 3

POOL, POOL_HEAD = 1 << 14, 48
"""CPython's allocator gives out blocks of 16, 32, ... 512 bytes, and has pools of 16 KiB for each of these sizes."""
LARGEST_BLOCK = 512
MOST_HOLES = 1 << 16

_libc = ctypes.PyDLL(None, use_errno=True)
_mmap, _mremap = _libc.mmap, _libc.mremap
_mmap.restype = _mremap.restype = ctypes.c_void_p
_fillers: list[object] = []


def fill_holes() -> None:
    """Take every free block of the pools that are in use: the next one of each size begins a new pool."""
    for size in range(16, LARGEST_BLOCK + 1, 16):
        for _ in range(MOST_HOLES):
            block = _block(size)
            if id(block) % POOL == POOL_HEAD:
                break
            _fillers.append(block)


def _block(size: int) -> object:
    """An object that takes a block of just this size."""
    if size == 16:
        return object()
    if size == 32:
        return 10**6 + len(_fillers)
    return bytes(size - 33)


def use_huge_pages() -> None:
    """Gather this process's memory into huge pages. Kernels before 6.1 can't do that on demand."""
    for start, end, rights, name in _mappings():
        if rights == "rw-p" and name in ("", "[heap]"):
            for address in _huge(start, end):
                _libc.madvise(ctypes.c_void_p(address), HUGE_PAGE, MADV_COLLAPSE)


def join_mappings() -> None:
    """Make one mapping of what the loader has made several of, by their rights alone: a fork pays for each.

    A library has five. Constants become executable like the code beside them, and what is read-only after loading stays
    writable like the data beside it; a program that runs here may change its own rights as it likes anyway.
    """
    mappings = _mappings()
    for (start, end, rights, name), following in pairwise(mappings):
        if rights == "r--p" and name.startswith("/"):
            is_data = following == (end, following[1], "rw-p", name)
            _libc.mprotect(
                ctypes.c_void_p(start), ctypes.c_size_t(end - start), READ_WRITE if is_data else READ_EXECUTE
            )


def own_code() -> None:
    """Replace code and constants of libraries by copies in huge pages, wherever much of a huge page is in use.

    Right only in a process with a single thread. Elsewhere than on x86 the processor would have to be told.
    """
    if platform.machine() != "x86_64":
        return
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        for start, end, rights, name in _mappings():
            if rights == "r-xp" and name.startswith("/"):
                for address in _huge(start, end):
                    pagemap.seek(address // PAGE * 8)
                    entries = pagemap.read(HUGE_PAGE // PAGE * 8)
                    if sum(flags >> 7 for flags in entries[7::8]) >= USED_PAGES:
                        _copy(address)


def _copy(address: int) -> None:
    """Put a copy of a huge page's worth of code in its place, if there is a huge page for it."""
    room = _mmap(None, ctypes.c_size_t(2 * HUGE_PAGE), READ_WRITE, PRIVATE_AND_EMPTY, -1, None)
    if room == ctypes.c_void_p(-1).value:
        return
    copy, size = ctypes.c_void_p(-(-room // HUGE_PAGE) * HUGE_PAGE), ctypes.c_size_t(HUGE_PAGE)
    _libc.madvise(copy, size, MADV_HUGEPAGE)
    ctypes.memmove(copy, address, HUGE_PAGE)
    if _libc.madvise(copy, size, MADV_COLLAPSE) == 0 and _libc.mprotect(copy, size, READ_EXECUTE) == 0:
        _mremap(copy, size, size, MOVE_TO, ctypes.c_void_p(address))
    _libc.munmap(ctypes.c_void_p(room), ctypes.c_size_t(2 * HUGE_PAGE))


def _huge(start: int, end: int) -> range:
    """The huge pages that lie between two addresses."""
    return range(-(-start // HUGE_PAGE) * HUGE_PAGE, end // HUGE_PAGE * HUGE_PAGE, HUGE_PAGE)


def _mappings() -> list[tuple[int, int, str, str]]:
    """Start, end, rights and name of what this process has mapped."""
    found = []
    with open("/proc/self/maps", encoding="utf-8") as file:
        for line in file:
            span, rights, _, _, _, *name = line.split(maxsplit=5)
            start, end = (int(number, 16) for number in span.split("-"))
            found.append((start, end, rights, name[0].strip() if name else ""))
    return found
