"""How much each waiting job may still be overtaken by: a tree in the order of arrival.

``sooner.core.guard`` lowers the allowances of all jobs that arrived before a given one at every pop, and asks
for the earliest job whose allowance is used up. Both touch one path of a binary search tree that keeps, at each
node, the least allowance below it and what is still to be added to everything below it.

The tree is a treap (Seidel and Aragon 1996, https://doi.org/10.1007/BF01940876): each node has a random weight,
and no child is heavier than its parent, so that the expected depth is O(log n) whatever the order of insertion.
A segment tree over slots takes less time a step, but a job that comes back between two slots, as a file does
after every window, has it rebuilt or needs tombstones and compaction. Weights are a hash of a counter: the core
draws no random numbers, and jobs enter in the order of time, which nobody can arrange against the weights.

Allowances are whole nanoseconds: integers add up the same in any order, so the least of a subtree is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

__all__ = ["AllowanceTree", "Arrival"]

Arrival = tuple[float, int, str]
"""Place in the order of arrival: arrival_s, sequence, id. The id only keeps apart what a caller left tied."""

_MASK = 2**64 - 1


def _weight(number: int) -> int:
    """A number of 64 bits that looks random: SplitMix64, https://doi.org/10.1145/2660193.2660195."""
    mixed = (number * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


class _Node:
    """One job. ``value_ns`` and ``least_ns`` lack what is pending at the nodes above."""

    __slots__ = ("arrival", "least_ns", "left", "pending_ns", "right", "value_ns", "weight")

    def __init__(self, arrival: Arrival, value_ns: int, weight: int) -> None:
        self.arrival = arrival
        self.value_ns = value_ns
        self.weight = weight
        self.least_ns = value_ns  # of the subtree
        self.pending_ns = 0  # to be added to both children
        self.left: _Node | None = None
        self.right: _Node | None = None

    def __deepcopy__(self, memo: dict[int, object]) -> _Node:
        """The subtree again; much faster than attribute by attribute."""
        again = _Node(self.arrival, self.value_ns, self.weight)
        again.least_ns, again.pending_ns = self.least_ns, self.pending_ns
        again.left = None if self.left is None else self.left.__deepcopy__(memo)
        again.right = None if self.right is None else self.right.__deepcopy__(memo)
        return again

    def add(self, amount_ns: int) -> None:
        """Add to the whole subtree. O(1)."""
        self.value_ns += amount_ns
        self.least_ns += amount_ns
        self.pending_ns += amount_ns

    def settle(self) -> None:
        """Hand what is pending down to the children, so that they can be looked at by themselves."""
        if self.pending_ns:
            if self.left is not None:
                self.left.add(self.pending_ns)
            if self.right is not None:
                self.right.add(self.pending_ns)
            self.pending_ns = 0

    def refresh(self) -> None:
        """Recompute the least of the subtree after a child changed."""
        least_ns = self.value_ns
        if self.left is not None and self.left.least_ns < least_ns:
            least_ns = self.left.least_ns
        if self.right is not None and self.right.least_ns < least_ns:
            least_ns = self.right.least_ns
        self.least_ns = least_ns


def _split(node: _Node | None, arrival: Arrival) -> tuple[_Node | None, _Node | None]:
    """Take a subtree apart: what arrived before, and the rest."""
    if node is None:
        return None, None
    node.settle()
    if node.arrival < arrival:
        node.right, rest = _split(node.right, arrival)
        node.refresh()
        return node, rest
    before, node.left = _split(node.left, arrival)
    node.refresh()
    return before, node


def _merge(before: _Node | None, after: _Node | None) -> _Node | None:
    """Join two subtrees, all of one having arrived before all of the other."""
    if before is None:
        return after
    if after is None:
        return before
    if before.weight > after.weight:
        before.settle()
        before.right = _merge(before.right, after)
        before.refresh()
        return before
    after.settle()
    after.left = _merge(before, after.left)
    after.refresh()
    return after


def _with(node: _Node | None, new: _Node) -> _Node:
    """The subtree with one node more."""
    if node is None:
        return new
    if new.weight > node.weight:
        new.left, new.right = _split(node, new.arrival)
        new.refresh()
        return new
    node.settle()
    if new.arrival < node.arrival:
        node.left = _with(node.left, new)
    else:
        node.right = _with(node.right, new)
    node.refresh()
    return node


def _without(node: _Node | None, arrival: Arrival, charge_ns: int) -> tuple[_Node | None, _Node]:
    """The subtree with one node less, every node before it lowered by ``charge_ns``, and the node."""
    if node is None:
        raise KeyError(arrival)
    node.settle()
    if arrival < node.arrival:
        node.left, gone = _without(node.left, arrival, charge_ns)
        node.refresh()
        return node, gone
    if node.left is not None:
        node.left.add(-charge_ns)
    if node.arrival == arrival:
        return _merge(node.left, node.right), node
    node.value_ns -= charge_ns
    node.right, gone = _without(node.right, arrival, charge_ns)
    node.refresh()
    return node, gone


class AllowanceTree:
    """Allowances of waiting jobs, in the order of arrival. Every operation on one job is O(log n), expected."""

    def __init__(self) -> None:
        self._root: _Node | None = None
        self._num_inserted = 0

    def insert(self, arrival: Arrival, allowance_ns: int) -> None:
        """Add a job that is not there."""
        self._num_inserted += 1
        self._root = _with(self._root, _Node(arrival, allowance_ns, _weight(self._num_inserted)))

    def remove(self, arrival: Arrival) -> int:
        """Take a job out; what it might still be overtaken by. Raises ``KeyError`` where it is not there."""
        return self.take(arrival, 0)

    def take(self, arrival: Arrival, charge_ns: int) -> int:
        """As ``remove``, and lower the allowance of every job that arrived before."""
        self._root, gone = _without(self._root, arrival, charge_ns)
        return gone.value_ns

    def first_due(self) -> Arrival | None:
        """The earliest job whose allowance is 0 or less; ``None`` where there is none."""
        node = self._root
        if node is None or node.least_ns > 0:
            return None
        while True:
            node.settle()
            if node.left is not None and node.left.least_ns <= 0:
                node = node.left
            elif node.value_ns <= 0:
                return node.arrival
            else:
                assert node.right is not None, "the least of a subtree is of nobody in it"
                node = node.right

    def items(self) -> Iterator[tuple[Arrival, int]]:
        """All jobs in the order of arrival, each with its allowance. O(n)."""
        path: list[tuple[_Node, int]] = []
        node, pending_ns = self._root, 0
        while node is not None or path:
            while node is not None:
                path.append((node, pending_ns))
                pending_ns += node.pending_ns
                node = node.left
            node, pending_ns = path.pop()
            yield node.arrival, node.value_ns + pending_ns
            pending_ns += node.pending_ns
            node = node.right

    def check(self) -> None:
        """Raise ``AssertionError`` where an invariant does not hold. O(n); for tests."""
        items = list(self.items())
        arrivals = [arrival for arrival, _ in items]
        assert all(a < b for a, b in pairwise(arrivals)), "not in the order of arrival"
        due = [arrival for arrival, allowance_ns in items if allowance_ns <= 0]
        assert self.first_due() == (due[0] if due else None), "a scan finds another job due"
        _check(self._root)


def _check(node: _Node | None) -> int | None:
    """Check a subtree; its least allowance, counted anew."""
    if node is None:
        return None
    least_ns = node.value_ns
    for child in (node.left, node.right):
        below_ns = _check(child)
        if child is not None and below_ns is not None:
            assert child.weight <= node.weight, "a child is heavier than its parent"
            least_ns = min(least_ns, below_ns + node.pending_ns)
    assert least_ns == node.least_ns, "the least of a subtree is wrong"
    return least_ns
