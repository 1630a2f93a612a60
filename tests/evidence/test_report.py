"""The report as a whole: its files, odd runs, hostile names, and what a browser makes of it."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sooner.errors import ConfigurationError
from sooner.evidence.options import ReportOptions
from sooner.evidence.report import write_report
from sooner.evidence.run_file import Run
from tests.browser import find_chromium, visit
from tests.evidence.samples import failure, header, make_run, request

HOSTILE = "<script>alert(1)</script>$\\frac"


def report(folder: Path, runs: Sequence[Run], **options: object) -> str:
    page = write_report(runs, ReportOptions(out=folder, **options))  # type: ignore[arg-type]
    assert page == folder / "report.html"
    return page.read_text(encoding="utf-8")


def plenty(num_requests: int = 150) -> list[Run]:
    return [
        make_run(policy, load=load, seed=seed, num_requests=num_requests)
        for load in (0.5, 0.9)
        for policy in ("sjf", "fcfs")
        for seed in (1, 2)
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report with everything in it, and a policy with a name that is none."""
    folder = tmp_path_factory.mktemp("report")
    report(folder, [*plenty(), make_run(HOSTILE, load=0.9, num_requests=150)], title="A & B", slo_short_s=5.0)
    return folder


@pytest.mark.parametrize("limit_s", [0.0, -1.0, float("nan"), float("inf")])
def test_limits_without_sense_are_refused(limit_s: float) -> None:
    with pytest.raises(ConfigurationError, match="--slo-s must be"):
        ReportOptions(slo_s=limit_s)


def test_the_whole_report(whole: Path) -> None:
    text = (whole / "report.html").read_text(encoding="utf-8")
    assert "<h1>A &amp; B</h1>" in text
    titles = re.findall(r'<h3 id="s1-([a-z-]+)"', text)
    assert titles == [
        "short",
        "who-pays",
        "latency",
        "over-load",
        "by-length",
        "slowdown",
        "waiting",
        "queue",
        "prediction",
        "goodput",
        "worst",
        "runs",
    ]
    figures = {path.stem for path in (whole / "figures").glob("*.png")}
    assert figures == {path.stem for path in (whole / "figures").glob("*.svg")}
    assert figures == set(re.findall(r"<figcaption>([^<]+)</figcaption>", text))
    assert {"s1-cdf-e2e-load-0.9", "s1-p99-by-load", "s1-who-pays-by-length-load-0.5", "s1-lengths"} <= figures
    for path in (whole / "figures").glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_tables_are_csv_with_numbers_in_full(tmp_path: Path) -> None:
    run = Run(header=header(num_requests=2), records=(request(0, finished_s=1.23456789), request(1)))
    report(tmp_path, [run])
    with (tmp_path / "tables" / "s1-latency.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["load"], row["policy"], row["n"], row["max s"]) == ("ρ = 0.8", "fcfs", "2", "2.0")
    assert float(row["P50 s"]) == pytest.approx((1.23456789 + 2) / 2, abs=1e-9)


def test_made_twice_it_is_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        report(tmp_path / name, plenty(60))
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert len(files) > 30
    for path in files:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes(), path


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        ([make_run("fcfs", num_requests=1)], "Only fcfs was run, so nothing is compared."),
        ([make_run("sjf"), make_run("hrrn")], "fcfs, the baseline, was not run here"),
        ([make_run("fcfs", seed=1), make_run("sjf", seed=2)], "were not run with the same traffic"),
        ([make_run("fcfs", num_requests=5), make_run("sjf", num_requests=5)], "Too few requests to tell: "),
        ([make_run("fcfs", load=1.2)], "more is asked for than can be served"),
        (
            [Run(header=header(num_requests=9), records=(request(0),))],
            "9 requests were announced, 1 are",
        ),
        ([Run(header=header(), records=(), failures=(failure(0),))], "1 of 1 requests got no text (HTTP 503 1)"),
        ([Run(header=header(), records=())], "0, of which 0 got a text"),
        ([Run(header=header(source="simulator"), records=(request(0),))], "as true as the profile tiny.en is"),
        (
            [Run(header=header(), records=(request(0, audio_s=0.0, finished_s=0.0, wait_s=0.0, service_s=0.0),))],
            "Only",
        ),
        ([Run(header=header(load=None, rate_per_s=None, seed=None), records=(request(0),))], "a burst"),
    ],
)
def test_odd_runs(tmp_path: Path, runs: list[Run], sentence: str) -> None:
    assert sentence in report(tmp_path, runs)


def test_what_is_not_comparable_gets_sections_of_its_own(tmp_path: Path) -> None:
    text = report(tmp_path, [make_run("fcfs"), make_run("fcfs", engine="base.en")])
    assert re.findall(r"<h2>(.*?)</h2>", text) == [
        "1. mixed lengths, Poisson arrivals, tiny.en",
        "2. mixed lengths, Poisson arrivals, base.en",
    ]
    assert (tmp_path / "tables" / "s2-latency.csv").exists()


def test_names_from_files_stay_text(tmp_path: Path) -> None:
    odd = "../../_\x00語\ud800"
    runs = [
        make_run(HOSTILE, workload=HOSTILE, engine=HOSTILE),
        make_run("_fcfs", workload=HOSTILE, engine=HOSTILE),
        make_run("=1+1", workload=HOSTILE, engine=HOSTILE),
        replace(
            make_run(odd, workload=HOSTILE, engine=HOSTILE), failures=(failure(0, error=HOSTILE, message=HOSTILE),)
        ),
    ]
    text = report(tmp_path, runs, title=HOSTILE, baseline="_fcfs")
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;$\\frac" in text
    names = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert all(re.fullmatch(r"[a-z0-9.-]+\.(html|png|svg|csv)", name) for name in names), names
    assert "'=1+1" in (tmp_path / "tables" / "s1-latency.csv").read_text(encoding="utf-8")


def test_many_policies_and_loads_have_a_bounded_page(tmp_path: Path) -> None:
    runs = [
        make_run(f"policy {n}", load=load, num_requests=40)
        for num, loads in ((9, (0.1,)), (2, (0.2, 0.3, 0.4, 0.5, 0.6)))
        for n in range(num)
        for load in loads
    ]
    text = report(tmp_path, runs, baseline="policy 0")
    assert len(re.findall("<figcaption>s1-cdf-e2e", text)) == 4
    assert len(text) < 5_000_000


def test_a_hundred_thousand_requests_have_a_small_page(tmp_path: Path) -> None:
    parts = [make_run("fcfs", seed=seed, num_requests=500) for seed in range(2)]
    runs = [
        replace(
            part,
            header=replace(part.header, policy=policy),
            records=tuple(replace(one, id=f"{n}-{one.id}") for n in range(50) for one in part.records),
        )
        for policy in ("fcfs", "sjf")
        for part in parts
    ]
    assert sum(len(run.records) for run in runs) == 100_000
    assert len(report(tmp_path, runs)) < 1_500_000


def test_policies_that_served_different_lengths_are_shown_together(tmp_path: Path) -> None:
    """sjf, which comes first, served none of the longest."""
    runs = {policy: make_run(policy, num_requests=400) for policy in ("fcfs", "sjf", "hrrn")}
    short = tuple(one for one in runs["sjf"].records if one.audio_s <= 600)
    assert len(short) < 400
    report(tmp_path, [runs["fcfs"], replace(runs["sjf"], records=short), runs["hrrn"]])
    drawn = (tmp_path / "figures" / "s1-who-pays-by-length-load-0.8.svg").read_text(encoding="utf-8")
    ticks = re.findall(r"<text[^>]*>([^<]*\d[^<]*)</text>", drawn)
    last = ["120–600", "&gt; 600"]
    assert [tick for tick in ticks if tick in last] == last


def test_times_of_0_under_the_baseline_are_too_few_to_tell(tmp_path: Path) -> None:
    """Their median is 1 s, but not in every sample of them."""
    records = tuple(request(n, finished_s=n + float(n > 18)) for n in range(40))
    runs = [Run(header=header(policy=policy, num_requests=40), records=records) for policy in ("fcfs", "sjf")]
    assert "median too few to tell (40)" in report(tmp_path, runs)


def test_queues_are_of_one_seed(tmp_path: Path) -> None:
    """Both have seed 2; the first of fcfs is another."""
    alike = [Run(header=header(policy=policy, seed=2), records=(request(0),)) for policy in ("fcfs", "sjf")]
    other = Run(header=header(seed=1), records=tuple(request(n, arrival_s=0.0) for n in range(9)))
    report(tmp_path, [other, *alike])
    with (tmp_path / "tables" / "s1-depth.csv").open(encoding="utf-8", newline="") as file:
        assert [row["most"] for row in csv.DictReader(file)] == ["1", "1"]


def test_nothing_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a run at least"):
        write_report([], ReportOptions(out=tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write_report([make_run("fcfs")], ReportOptions(out=tmp_path / "file"))


LAYOUT = """(() => ({
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  svgs: [...document.querySelectorAll("figure svg")].map(svg => svg.getBoundingClientRect().height),
  texts: [...document.querySelectorAll("figure svg text")].length,
  scripts: document.scripts.length,
}))()"""


@pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium on this machine; CI has one")
@pytest.mark.parametrize("is_dark", [False, True])
def test_in_a_browser(whole: Path, is_dark: bool) -> None:
    page = whole / "report.html"
    for seen in visit(page, expression=LAYOUT, widths=(390, 1200), dark=is_dark):
        assert seen.errors == ()
        assert seen.requests == (page.resolve().as_uri(),)
        assert seen.value["overflow"] == 0
        assert len(seen.value["svgs"]) > 15
        assert min(seen.value["svgs"]) > 150
        assert seen.value["texts"] > 200
        assert seen.value["scripts"] == 0
        assert seen.screenshot.startswith(b"\x89PNG")


@pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium on this machine; CI has one")
def test_the_browser_tells_what_is_wrong(tmp_path: Path) -> None:
    """The test above could not fail if the helper saw nothing."""
    page = tmp_path / "page.html"
    page.write_text(
        '<img src="missing.png" width="2000"><script>console.error("no"); throw Error("thrown")</script>'
    )
    (seen,) = visit(page, expression=LAYOUT, widths=(390,))
    assert len(seen.errors) >= 3
    assert seen.requests == (page.resolve().as_uri(), (tmp_path / "missing.png").resolve().as_uri())
    assert seen.value["overflow"] > 1000
