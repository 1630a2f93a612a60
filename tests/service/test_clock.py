"""Clocks."""

from __future__ import annotations

import pytest

from sooner.service.clock import ManualClock, MonotonicClock


def test_the_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(5.0)
    assert clock.now_s() == clock.now_s() == 5.0
    clock.advance(2.5)
    assert clock.now_s() == 7.5
    with pytest.raises(ValueError, match="go back"):
        clock.advance(-1.0)


def test_the_real_clock_never_goes_back() -> None:
    clock = MonotonicClock()
    readings = [clock.now_s() for _ in range(100)]
    assert readings == sorted(readings)
