"""The guides to operating are true: names, defaults and codes are those of the code, and the commands work."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sooner import SoonerError
from sooner.server.errors import code_of
from sooner.server.options import ServeOptions
from sooner.workload.recordings import clip_named

from .conftest import Serve

ROOT = Path(__file__).parents[2]
SERVE = (ROOT / "docs" / "serve.md").read_text()
METRICS = (ROOT / "docs" / "metrics.md").read_text()
CLIP = clip_named("austen-0880").path
UNITS = {"GiB": 2**30, "MiB": 2**20}


def codes() -> set[str]:
    kinds = [SoonerError]
    for kind in kinds:  # grows as it goes
        kinds += kind.__subclasses__()
    return {code_of(kind.__new__(kind)) for kind in kinds}


def test_every_metric_is_described_and_every_description_is_of_a_metric(serve: Serve) -> None:
    server = serve()
    assert [server.post(CLIP).status_code for _ in range(2)] == [200, 200]
    page = server.client.get("/metrics").text
    named = set(re.findall(r"`(sooner_\w+)`", METRICS))
    counted = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in text_string_to_metric_families(page)
        if family.name.startswith("sooner_")
    }
    assert named == counted


def test_the_limits_are_those_of_the_options() -> None:
    rows = re.findall(r"^\| `--([\w-]+)` \| (.+?) \| (.+?) \|$", SERVE, flags=re.MULTILINE)
    assert len(rows) >= 12
    defaults = {field.name: field.default for field in dataclasses.fields(ServeOptions)}
    for name, said, beyond in rows:
        default = defaults[name.replace("-", "_")]
        if (number := re.match(r"(\d+)(?: (\w+))?", said)) is not None:
            assert int(number[1]) * UNITS.get(number[2], 1) == default, name
        else:
            assert default is None, name
        for code in re.findall(r"\d{3} `(\w+)`", beyond):
            assert code in codes(), code


def test_every_option_and_code_in_the_guide_is_one() -> None:
    options = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(ServeOptions)}
    assert set(re.findall(r"(--[a-z][a-z-]+)", SERVE)) - {"--help"} <= options
    assert set(re.findall(r"\d{3} `(\w+)`", SERVE)) <= codes()


@pytest.mark.skipif(
    shutil.which("curl") is None or shutil.which("openssl") is None, reason="needs curl and openssl"
)
def test_the_commands_work(serve: Serve, tmp_path: Path) -> None:
    lines = [line.removeprefix("$ ") for line in SERVE.splitlines() if line.startswith("$ ")]
    make_keys, *_ = [line for line in lines if "openssl" in line]
    ready, transcribe, with_key, cancel = [line for line in lines if line.startswith("curl ")]
    (tmp_path / "src").symlink_to(ROOT / "src")

    def run(command: str, url: str) -> str:
        command = command.replace("http://127.0.0.1:8000", url)
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    server = serve(gated=True)
    assert run(ready, server.url) == '{"status":"ready"}'
    with ThreadPoolExecutor(1) as pool:
        text = pool.submit(run, transcribe, server.url)
        server.gate.wait_for_windows(1)
        assert run(cancel, server.url) == '{"id":"first","status":"cancelled"}'
        assert '"code":"cancelled"' in text.result()
        server.gate.open()
    assert '"text":"window 0 of 1"' in run(transcribe, server.url)

    run(make_keys, "")
    assert (tmp_path / "keys").stat().st_mode & 0o077 == 0
    closed = serve(api_keys=tmp_path / "keys")
    assert '"invalid_api_key"' in run("curl -s http://127.0.0.1:8000/v1/queue", closed.url)
    assert '"num_waiting":0' in run(with_key, closed.url)
