"""Where somebody speaks, measured while an upload is decoded."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from sooner.audio.decode import Samples

__all__ = ["CHUNK_SAMPLES", "VoiceDetector"]

CHUNK_SAMPLES = 512
"""What a detector judges at once: 32 ms."""


class VoiceDetector(Protocol):
    """Tells how likely it is that somebody speaks. Called in threads, several at once."""

    def __call__(self, samples: Samples) -> npt.NDArray[np.float32]:
        """The probability of speech in each chunk; ``samples`` is a whole number of chunks. Shape (n / 512,)."""
