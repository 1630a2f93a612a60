"""``python -m sooner.vllm_plugin``: whether vLLM in this environment will know our policies, and if not, why."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.metadata import entry_points

from sooner.errors import SoonerError
from sooner.vllm_plugin.config import our_policies
from sooner.vllm_plugin.seams import SEAMS, check_seams, vllm_version

_GROUP, _NAME = "vllm.general_plugins", "sooner"


def main() -> int:
    """Print what was found; 0 where the plugin will work."""
    try:
        version = vllm_version()
        check_seams()
    except SoonerError as error:
        print(error, file=sys.stderr)
        return 1
    if _NAME not in entry_points(group=_GROUP).names:
        print(
            "vLLM will not find the plugin: install Sooner beside it with pip, not by PYTHONPATH", file=sys.stderr
        )
        return 1
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and _NAME not in allowed.split(","):
        print(f"VLLM_PLUGINS={allowed} leaves the plugin out: add {_NAME!r} to it, or unset it", file=sys.stderr)
        return 1
    if os.environ.get("VLLM_USE_RUST_FRONTEND", "0") not in ("", "0"):
        print("VLLM_USE_RUST_FRONTEND is set: that front end has no place to measure recordings", file=sys.stderr)
        return 1
    import_module("vllm.plugins").load_general_plugins()  # others may bring policies
    print(f"vLLM {version}: all {len(SEAMS)} places that the plugin relies on are there.")
    print(f"--scheduling-policy takes fcfs, priority, {', '.join(our_policies())}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
