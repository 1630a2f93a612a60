"""What the package promises as a whole: exact names, no dependency for the core, true documents."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import sooner

ROOT = Path(__file__).parents[1]
NOT_HERE = {"prometheus_client", "torch", "vllm"}  # vLLM's environment has them

ONLY_THE_STANDARD_LIBRARY = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top != "sooner" and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""


def run_bare(code: str) -> subprocess.CompletedProcess[str]:
    """Run code where nothing but Sooner and the standard library can be imported."""
    return subprocess.run(
        [sys.executable, "-c", ONLY_THE_STANDARD_LIBRARY + code], capture_output=True, text=True, check=False
    )


def test_public_names() -> None:
    assert sooner.__all__ == [
        "AdaptivePolicy",
        "BoostPolicy",
        "Estimate",
        "Estimator",
        "FairPolicy",
        "Goals",
        "Guard",
        "HeapQueue",
        "HrrnPolicy",
        "Job",
        "LatencyRecord",
        "LatencySummary",
        "Limits",
        "Policy",
        "QuantilePolicy",
        "QueuedJob",
        "ReadyQueue",
        "ResponseRatioQueue",
        "Scheduler",
        "SchedulerStatistics",
        "SoonerError",
        "StaticPolicy",
        "Switch",
        "Ticket",
        "Traffic",
        "WaitingLine",
        "policies",
        "policy_named",
        "register",
        "summarise",
    ]
    assert all(hasattr(sooner, name) for name in sooner.__all__)


def test_the_core_needs_no_dependency() -> None:
    result = run_bare(
        """
from sooner import Estimator, Job, Scheduler, policy_named
s = Scheduler(policy_named("hrrn"), num_workers=1)
for name, audio_s in (("meeting", 600.0), ("clip", 3.0)):
    s.submit(Job(id=name, arrival_s=0.0, audio_s=audio_s, estimate=Estimator().estimate(audio_s)))
print(s.next(1.0).id)
"""
    )
    assert result.stdout.strip() == "clip", result.stderr


def test_the_command_without_its_extra_says_what_to_install() -> None:
    result = run_bare("from sooner.cli import main; main()")
    assert result.returncode == 1
    assert result.stderr.strip() == (
        "sooner: the sooner command needs an optional dependency: pip install 'sooner[serve]'"
    )


def test_a_bare_install_brings_nothing_along() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == []
    assert {"serve", "tiny", "test", "dev"} <= project["optional-dependencies"].keys()


@pytest.mark.parametrize(
    "document", ["flow.md", "design.md", "vllm.md", "vllm-notes.md", "workloads.md", "simulate.md", "report.md"]
)
def test_names_in_the_documents_exist(document: str) -> None:
    """Every `sooner...` name in backticks can be imported or is an attribute of what can.

    What needs vLLM is looked for in the source.
    """
    names = re.findall(r"`(sooner(?:\.\w+)+)`", (ROOT / "docs" / document).read_text())
    assert names or document != "flow.md"
    for name in names:
        assert_exists(name)


def assert_exists(name: str) -> None:
    module: str = name
    rest: list[str] = []
    while True:
        try:
            found = importlib.import_module(module)
            break
        except ModuleNotFoundError as error:
            if error.name in NOT_HERE:
                assert_in_source(name)
                return
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
    for attribute in rest:
        assert hasattr(found, attribute), name
        found = getattr(found, attribute)


def assert_in_source(name: str) -> None:
    """A module's file is there, and each further part of the name is defined in it."""
    *folders, last = name.split(".")
    names: list[str] = []
    while not (path := (ROOT / "src").joinpath(*folders, f"{last}.py")).exists():
        names.insert(0, last)
        *folders, last = folders
    for defined in names:
        assert re.search(rf"(class|def) {defined}\b", path.read_text()), name


def documents() -> list[Path]:
    folders = ("docs", "benchmarks", "src", "tests", "tools")
    return sorted([*ROOT.glob("*.md"), *(path for folder in folders for path in (ROOT / folder).rglob("*.md"))])


def without_code(path: Path) -> str:
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(path: Path) -> set[str]:
    """What GitHub makes of the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", without_code(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_no_link_in_a_document_is_dead() -> None:
    links = [
        (path, *link)
        for path in documents()
        for link in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", without_code(path))
    ]
    assert len(links) > 100
    for path, file, anchor in links:
        target = path.parent / file if file else path
        assert target.exists(), f"{path.relative_to(ROOT)}: {file}"
        assert not anchor or anchor in anchors(target), f"{path.relative_to(ROOT)}: {file}#{anchor}"


def test_the_readme_clips_are_where_it_says() -> None:
    for path in re.findall(r"src/sooner/workload/speech/\S+?\.flac", (ROOT / "README.md").read_text()):
        assert (ROOT / path).is_file()


def test_the_changelog_tells_of_this_version() -> None:
    assert f"## {sooner.__version__}" in (ROOT / "CHANGELOG.md").read_text()
