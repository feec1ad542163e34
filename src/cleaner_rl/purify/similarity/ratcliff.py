"""Ratcliff/Obershelp similarity, bit for bit as `difflib` gives it with autojunk off, within a bound of counted work.

`difflib` takes the longest common block, then does the same left and right of it. Each search costs it the product of
both lengths, times how repetitive the texts are. Here one suffix sort of both texts (`_reach`) tells for each position
how far it can match anything in the other text. Most positions can't beat the block already found and cost one
comparison; the others are settled by `str.find`.

The bound is on steps that depend on the two texts only, never on a clock: every machine takes the same decision. A step
was weighed to be about a nanosecond; a slower machine needs longer for the same steps. `docs/similarity.md` says up to
what size real code stays exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MAX_WORK = 18_000_000
"""Steps after which a pair is given up."""
SORT, BOX, SCAN, PIECE, SEARCH = 35, 4_000, 40, 130, 900
"""Steps for sorting a character, opening a box, passing a position, taking a piece, starting a search."""

MAX_PEEL = 1_000_000
"""Characters that a look at the ends may copy."""

Ints = npt.NDArray[np.int64]
Box = tuple[int, int, int, int]
"""What is being compared: `a[alo:ahi]` and `b[blo:bhi]`."""


class _TooMuchWorkError(Exception):
    pass


class _Work:
    """Counts steps, and raises when there are too many."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise _TooMuchWorkError


class _Text(NamedTuple):
    """One of both texts, and what each position of it has in common with the other one."""

    text: str
    reach: list[int]
    """The longest match from there with anything in the other text."""
    overlap: list[int]
    """The lengths of all matches from there, summed, or up to twice that: what a search can compare in vain."""


class _Block(NamedTuple):
    """The longest common block of a box; where it begins depends on the order of the arguments."""

    size: int
    starts: tuple[tuple[int, int], tuple[int, int]]
    """In a and b: of the blocks of this size the earliest in a, then in b; and the earliest in b, then in a."""


def ratio(a: str, b: str, max_work: int = MAX_WORK) -> float | None:
    """The larger of `SequenceMatcher(None, x, y, autojunk=False).ratio()` of both orders; None beyond the bound."""
    # Sorted, so that the work, and with it the decision to give up, doesn't depend on the order either.
    a, b = sorted((a, b), key=lambda text: (len(text), text))
    ends, inner_a, inner_b = _peeled(a, b)
    try:
        matched = ends + (_matched(inner_a, inner_b, _Work(max_work)) if inner_a and inner_b else 0)
    except _TooMuchWorkError:
        return None
    return 2.0 * matched / (len(a) + len(b))


def _peeled(a: str, b: str) -> tuple[int, str, str]:
    """How many characters at both ends lie in blocks that come first in any order, and the texts between them.

    A correction mostly differs from the failure in few places. Where what both texts begin or end with is their longest
    block, and no other one could be taken in its place, it needs no search, and both orders agree.
    """
    taken = 0
    while True:
        prefix = _common_prefix(a, b)
        suffix = _common_prefix(a[::-1], b[::-1])
        size, longer = max(prefix, suffix), max(len(a), len(b))
        if 2 * size < longer or (longer - size) * size > MAX_PEEL:
            return taken, a, b
        if prefix >= suffix:
            # It begins first in both: only a longer one would come before it.
            if _share(a, b, size + 1):
                return taken, a, b
            a, b = a[size:], b[size:]
        else:
            # It begins last in both: any other one of its size would come before it.
            if _share(a[:-1], b, size) or a[-size:] in b[:-1]:
                return taken, a, b
            a, b = a[:-size], b[:-size]
        taken += size
        if not a or not b:
            return taken, a, b


def _common_prefix(a: str, b: str) -> int:
    shared, limit = 0, min(len(a), len(b))
    while shared < limit:
        middle = (shared + limit + 1) // 2
        if a[shared:middle] == b[shared:middle]:
            shared = middle
        else:
            limit = middle - 1
    return shared


def _share(a: str, b: str, size: int) -> bool:
    """Whether any block of this size is in both."""
    blocks = {a[start : start + size] for start in range(len(a) - size + 1)}
    return not blocks.isdisjoint(b[start : start + size] for start in range(len(b) - size + 1))


def _matched(a: str, b: str, work: _Work) -> int:
    """How many characters lie in common blocks, in the better of both orders."""
    texts = _reach(a, b, work)
    blocks: dict[Box, _Block] = {}  # both orders mostly meet the same boxes
    totals = [0, 0]
    for order in (0, 1):
        # No block inside a box is longer than the one that cut the box out.
        boxes = [((0, len(a), 0, len(b)), len(a))]
        while boxes:
            box, limit = boxes.pop()
            if box not in blocks:
                blocks[box] = _longest_block(*texts, box, limit, work)
            size, starts = blocks[box]
            totals[order] += size
            alo, ahi, blo, bhi = box
            i, j = starts[order]
            if alo < i and blo < j:
                boxes.append(((alo, i, blo, j), size))
            if size and i + size < ahi and j + size < bhi:
                boxes.append(((i + size, ahi, j + size, bhi), size))
    return max(totals)


def _longest_block(a: _Text, b: _Text, box: Box, limit: int, work: _Work) -> _Block:
    alo, ahi, blo, bhi = box
    if ahi - alo > bhi - blo:  # few searches in a long part are faster than many in a short one
        size, (by_b, by_a) = _longest_block(b, a, (blo, bhi, alo, ahi), limit, work)
        return _Block(size, (by_a[::-1], by_b[::-1]))
    width, size, besti, bestj = bhi - blo, 0, alo, blo
    for i, reach in enumerate(a.reach[alo:ahi], alo):
        if reach <= size:
            continue
        # First whether i beats the block at all, which it mostly doesn't; then by halves how far.
        longest = min(reach, ahi - i, limit)
        length = size + 1
        while size < longest:
            work.spend(SEARCH + width + min(a.overlap[i], width * length))
            j = b.text.find(a.text[i : i + length], blo, bhi)
            if j < 0:
                longest = length - 1
            else:
                size, besti, bestj = length, i, j
            length = (size + longest + 1) // 2
        if size == limit:
            break
    work.spend(BOX + SCAN * (i - alo + bestj - blo))
    return _Block(size, ((besti, bestj), _earliest_in_b(a, b, box, (besti, bestj), size, work)))


def _earliest_in_b(a: _Text, b: _Text, box: Box, start: tuple[int, int], size: int, work: _Work) -> tuple[int, int]:
    """Where the block of this size begins that is the earliest in b, given the earliest in a."""
    (alo, ahi, blo, _), (besti, bestj) = box, start
    earlier = [j for j, reach in enumerate(b.reach[blo:bestj], blo) if reach >= size]
    if not earlier:
        return start
    # No piece of this size begins in a before the block.
    later = [i for i, reach in enumerate(a.reach[besti : ahi - size + 1], besti) if reach >= size]
    work.spend(SCAN * (ahi - alo) + (PIECE + size) * (len(earlier) + len(later)))
    pieces = {a.text[i : i + size]: i for i in reversed(later)}
    for j in earlier:
        i = pieces.get(b.text[j : j + size])
        if i is not None:
            return i, j
    return start


def _reach(a: str, b: str, work: _Work) -> tuple[_Text, _Text]:
    """Sorts all suffixes of both texts by doubling: by 1, 2, 4, ... characters, as long as any of them match."""
    n, in_a, in_b = len(a) + len(b) + 2, slice(0, len(a)), slice(len(a) + 1, -1)
    work.spend(2 * SORT * n)
    codes = np.frombuffer(f"{a}\0{b}\0".encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
    codes[[len(a), -1]] = 0x110000, 0x110001  # two that are no characters, so no match runs over an end
    place = np.arange(n)
    overlap = np.zeros(n, np.int64)
    ranks: list[Ints] = []  # ranks[p][i]: the rank of the 2**p characters from i
    order, rank = _ranked(codes, place)
    while True:
        count_a, count_b = np.bincount(rank[in_a], minlength=n), np.bincount(rank[in_b], minlength=n)
        if not np.any(count_a * count_b):
            break
        work.spend(SORT * n)
        step = 1 << len(ranks)
        overlap[in_a] += step * count_b[rank[in_a]]
        overlap[in_b] += step * count_a[rank[in_b]]
        following = np.zeros(n, np.int64)
        following[:-step] = rank[step:]  # what runs over the end holds its mark, and has a rank of its own already
        ranks.append(rank)
        order, rank = _ranked(rank * n + following, place)
    reach = np.zeros(n, np.int64)
    # The longest match of a suffix is with the nearest one of the other text in this order, before it or after it.
    for ordered in (order, order[::-1]):
        is_a = ordered <= len(a)
        last_a, last_b = (np.maximum.accumulate(np.where(own, place, -1)) for own in (is_a, ~is_a))
        nearest = np.where(is_a, last_b, last_a)
        start, x, y = ordered[nearest >= 0], ordered[nearest >= 0], ordered[nearest[nearest >= 0]]
        for power in reversed(range(len(ranks))):
            same = (ranks[power][x] == ranks[power][y]) << power
            x, y = x + same, y + same
        reach[start] = np.maximum(reach[start], x - start)
    return (
        _Text(a, reach[in_a].tolist(), overlap[in_a].tolist()),
        _Text(b, reach[in_b].tolist(), overlap[in_b].tolist()),
    )


def _ranked(keys: Ints, place: Ints) -> tuple[Ints, Ints]:
    """The order that sorts the keys, and the rank of each key: equal keys, equal rank."""
    bits = len(place).bit_length()
    packed = np.sort(keys << bits | place)  # sorting one integer is several times faster than `argsort`
    order = packed & ((1 << bits) - 1)
    packed >>= bits
    rank = np.zeros_like(order)
    rank[order[1:]] = np.cumsum(packed[1:] != packed[:-1])
    return order, rank
