"""The same requests under two policies."""

from __future__ import annotations

from dataclasses import replace

from sooner.evidence.report.paired import compare
from sooner.evidence.report.sections import Cell, sections_of
from sooner.evidence.run_file import Run
from tests.evidence.samples import failure, make_run


def cells(*runs: Run) -> tuple[Cell, Cell]:
    (section,) = sections_of(runs, baseline="fcfs")
    base, other = section.at(section.offered[0])
    return base, other


def test_without_a_seed_nothing_pairs() -> None:
    run = make_run("fcfs")
    base, other = cells(replace(run, header=replace(run.header, seed=None)), make_run("sjf"))
    assert compare(base, other).runs == ()
    assert compare(base, other).overall == ()


def test_failed_requests_are_on_neither_side() -> None:
    whole, cut = make_run("fcfs"), make_run("sjf")
    short = replace(cut, records=cut.records[5:], failures=(failure(0),))
    found = compare(*cells(whole, short))
    assert found.num_left_out == 5
    assert found.overall[0].num_requests == 195


def test_one_id_and_two_lengths_are_two_requests() -> None:
    whole, other = make_run("fcfs"), make_run("sjf")
    changed = replace(other, records=tuple(replace(one, audio_s=one.audio_s + 1) for one in other.records))
    assert compare(*cells(whole, changed)).runs == ()


def test_short_ones_gain_and_long_ones_pay_under_sjf() -> None:
    runs = [make_run(policy, seed=seed, num_requests=400) for policy in ("fcfs", "sjf") for seed in (1, 2, 3)]
    found = compare(*cells(*runs))
    changes = {change.whose: change for change in found.by_length}
    short, long = changes["0-5 s"].interval, changes["> 600 s"].interval
    assert short is not None
    assert long is not None
    assert short.high < 0 < long.low
    assert sum(change.num_requests for change in found.by_length) == 1200
    assert [change.num_requests for change in found.by_size] == [120] * 10


def test_requests_of_a_seed_that_one_side_lacks_are_left_out() -> None:
    base, other = cells(make_run("fcfs", seed=1), make_run("fcfs", seed=2), make_run("sjf", seed=2))
    found = compare(base, other)
    assert (len(found.runs), found.num_left_out) == (1, 200)


def test_small_groups_have_no_interval() -> None:
    found = compare(*cells(make_run("fcfs", num_requests=99), make_run("sjf", num_requests=99)))
    assert {change.figure: change.interval is not None for change in found.overall} == {
        "mean": True,
        "median": True,
        "P90": False,
        "P99": False,
    }
    assert all((change.interval is None) == (change.num_requests < 20) for change in found.by_length)


def test_equal_sizes_stay_in_one_tenth() -> None:
    alike = [
        replace(run, records=tuple(replace(one, size_s=1.0) for one in run.records))
        for run in (make_run("fcfs"), make_run("sjf"))
    ]
    assert [change.num_requests for change in compare(*cells(*alike)).by_size] == [200]
