"""The same requests in two runs."""

from __future__ import annotations

import numpy as np
import pytest

from sooner.evidence.comparison import Figure, Pair
from sooner.evidence.pairing import FIGURES, Served, interval_of, pair_runs
from sooner.evidence.run_file import Run
from sooner.evidence.summary import columns_of
from tests.evidence.samples import header, make_run, request


def served(*runs: Run) -> list[Served]:
    return [(run.header, columns_of(run)) for run in runs]


def lasting(e2e_s: float, number: int = 0) -> Run:
    """One request that takes so long."""
    return Run(header=header(notes={"round": number}), records=(request(0, arrival_s=0.0, finished_s=e2e_s),))


def test_runs_pair_by_seed_and_requests_by_id() -> None:
    base, other = (served(*(make_run(policy, seed=seed) for seed in (1, 2))) for policy in ("fcfs", "sjf"))
    runs, num_left_out = pair_runs(base, other[::-1])
    assert [len(run.base) for run in runs] == [200, 200]
    assert num_left_out == 0
    for run in runs:
        assert run.base.ids.tolist() == run.other.ids.tolist()
        assert run.base.audio_s.tolist() == run.other.audio_s.tolist()


def test_rounds_of_one_seed_pair_with_their_like() -> None:
    runs, num_left_out = pair_runs(served(lasting(1.0, 1), lasting(2.0, 2)), served(lasting(3.0, 2)))
    assert [(run.base.e2e_s.tolist(), run.other.e2e_s.tolist()) for run in runs] == [([2.0], [3.0])]
    assert num_left_out == 1


def test_runs_of_one_seed_and_round_pair_in_their_order_and_none_is_dropped_in_silence() -> None:
    base, other = served(lasting(1.0), lasting(2.0), lasting(3.0)), served(lasting(4.0), lasting(5.0))
    runs, num_left_out = pair_runs(base, other)
    assert [(*run.base.e2e_s, *run.other.e2e_s) for run in runs] == [(1.0, 4.0), (2.0, 5.0)]
    assert num_left_out == 1


@pytest.mark.parametrize("seed", [None, 9])
def test_requests_of_a_run_without_a_partner_are_left_out(seed: int | None) -> None:
    base = served(make_run("fcfs"), make_run("fcfs", num_requests=30, seed=3))
    odd = make_run("sjf", num_requests=20)
    runs, num_left_out = pair_runs(
        base, [*served(make_run("sjf")), (header(seed=seed, notes={}), columns_of(odd))]
    )
    assert len(runs) == 1
    assert num_left_out == 30 + 20


@pytest.mark.parametrize(("figure", "num_least"), [one[1:] for one in FIGURES])
def test_a_figure_takes_its_number_of_requests(figure: Figure, num_least: int) -> None:
    values = np.arange(1.0, num_least + 1)
    pair, short = Pair(base=values, other=values), Pair(base=values[1:], other=values[1:])
    assert interval_of([pair], figure, num_least=num_least) is not None
    assert interval_of([short], figure, num_least=num_least) is None
