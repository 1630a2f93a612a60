"""Pure scheduling decisions: no clock, no I/O, no logging; ``now_s`` is an argument."""
