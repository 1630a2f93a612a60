"""What a user sees where there is no vLLM."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from sooner.errors import MissingVllmError
from sooner.vllm_plugin.seams import check_seams

pytestmark = pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")


def test_the_check_says_what_to_install() -> None:
    with pytest.raises(MissingVllmError, match=r"pip install 'vllm==0\.32\.\*'"):
        check_seams()


def test_so_does_the_command() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "sooner.vllm_plugin"], capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 1
    assert result.stderr.startswith("vLLM is not installed in this environment")
