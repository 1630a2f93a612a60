"""Waiting for what a server does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(look: Callable[[], T], condition: Callable[[T], bool]) -> T:
    """Look until ``condition`` holds for what is seen; that is the result."""
    give_up_s = time.monotonic() + 30
    while not condition(seen := look()):
        assert time.monotonic() < give_up_s, f"it never got there: {seen}"
        time.sleep(0.005)  # between two looks, not in place of one: a busy loop starves the server
    return seen
