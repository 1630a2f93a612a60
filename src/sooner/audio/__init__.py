"""From bytes to facts: how many seconds, which samples. Needs the ``serve`` extra (PyAV, NumPy)."""
