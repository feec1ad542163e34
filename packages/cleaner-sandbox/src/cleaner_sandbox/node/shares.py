"""How a bounded thing is shared: whoever holds little of it always gets more, whatever the others hold.

Half of it is kept for owners that hold less than an even share of that half. The other half is for whoever comes, so
that one busy owner among many idle ones still has most of it.
"""

from __future__ import annotations

from collections.abc import Mapping


def has_room(most: int, held: Mapping[str, int], owner: str, owners: int, more: int = 1) -> bool:
    """Whether an owner may hold `more` than it does.

    Args:
        most: What all together may hold.
        held: What each owner holds, as far as it holds any.
        owner: Who asks.
        owners: How many there are, those that hold nothing included.
        more: What it asks for.
    """
    share = _share(most, owners)
    if held.get(owner, 0) + more <= share:
        return True
    kept = share * (owners - 1) - sum(min(share, amount) for other, amount in held.items() if other != owner)
    return sum(held.values()) + more + max(0, kept) <= most


def _share(most: int, owners: int) -> int:
    """What each owner may always hold; rounded up, so that it is never nothing."""
    return -(-most // (2 * owners))


class Shares:
    """What each owner holds of a bounded thing.

    Examples:
        >>> from cleaner_sandbox.node.shares import Shares
        >>> places = Shares(most=8, owners=2)
        >>> places.take("a", 6)
        >>> places.has_room("a", 1), places.has_room("b", 2)
        (False, True)
    """

    def __init__(self, most: int, owners: int) -> None:
        self.most, self._owners = most, owners
        self.held = 0
        self._of: dict[str, int] = {}

    @property
    def most_of_one(self) -> int:
        """What one owner may hold while the others hold nothing."""
        share = _share(self.most, self._owners)
        return max(share, self.most - share * (self._owners - 1))

    def of(self, owner: str) -> int:
        """What an owner holds."""
        return self._of.get(owner, 0)

    def has_room(self, owner: str, more: int) -> bool:
        """Whether an owner may hold so much more."""
        return has_room(self.most, self._of, owner, self._owners, more)

    def take(self, owner: str, amount: int) -> None:
        """Note that an owner holds so much more, or, below zero, less."""
        self.held += amount
        self._of[owner] = self._of.get(owner, 0) + amount
