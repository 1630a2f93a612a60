"""What sizes that learn gain: error of predicted tokens and service, static against learning.

Method: LibriSpeech test-clean, then test-other, one utterance a job in corpus order, predicted, served and
observed one after the other. Tokens are those of the transcripts. Service times are made from the profile
embedded-tiny, as the simulator makes them: encode_s, token_s and context_s of each window, times a log-normal
factor with its spread and mean 1; windows advance by its window_s. All estimators start from the profile's costs.
"static" and "learns" start from its kappa, which was fitted to another mix of recordings and so is wrong here;
"static, right at first" has the 3.02 of test-clean, which only who knows the recordings beforehand can set.

Four cases: as it is; twice the tokens a second from the first utterance of test-other on; a machine half as fast
from there on; and, in the first case, a learning estimator that is saved as JSON and loaded into a new one at that
point. "per client": the estimator is told the corpus's speakers as clients. All of test-other's are new at the
change and start with nothing to forget, so clients known before would be followed more slowly. The figure is the
mean of |actual - predicted| / actual, in percent, of all jobs before the change, of the first, second and third
hundred after it, and of the rest. The seed is fixed and nothing is timed, so every run gives the same numbers.
"""

from __future__ import annotations

import json
import math
import platform
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from sooner import Estimator, Job
from sooner.simulator.profile import WorkersProfile, load_profile
from sooner.workload.recordings import Utterance, librispeech_test_clean, librispeech_test_other

RESULTS = Path(__file__).parent / "results" / "learning.json"
SEED = 1
RIGHT_KAPPA = 3.02  # of test-clean
NUM_BEFORE = len(librispeech_test_clean())
SPANS = {
    "before": slice(0, NUM_BEFORE),
    "1-100": slice(NUM_BEFORE, NUM_BEFORE + 100),
    "101-200": slice(NUM_BEFORE + 100, NUM_BEFORE + 200),
    "201-300": slice(NUM_BEFORE + 200, NUM_BEFORE + 300),
    "rest": slice(NUM_BEFORE + 300, None),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A job and what it really took."""

    utterance: Utterance
    tokens: int
    num_windows: int
    service_s: float


def served(profile: WorkersProfile, *, token_factor: float = 1.0, service_factor: float = 1.0) -> list[Served]:
    """All utterances; the factors hold from test-other on."""
    rng = random.Random(SEED)
    jobs = []
    for number, utterance in enumerate((*librispeech_test_clean(), *librispeech_test_other())):
        has_changed = number >= NUM_BEFORE
        tokens = round(utterance.num_tokens * (token_factor if has_changed else 1.0))
        num_windows = profile.num_windows(utterance.audio_s)
        first_s = profile.encode_s + profile.token_s * tokens / num_windows
        service_s = sum(
            (first_s + (profile.context_s if window else 0.0))
            * math.exp(rng.gauss(-(profile.spread**2) / 2, profile.spread))
            for window in range(num_windows)
        )
        factor = service_factor if has_changed else 1.0
        jobs.append(
            Served(utterance=utterance, tokens=tokens, num_windows=num_windows, service_s=service_s * factor)
        )
    return jobs


def estimator(profile: WorkersProfile, *, learns: bool, kappa: float | None) -> Estimator:
    return Estimator(
        kappa=profile.kappa if kappa is None else kappa,
        encode_s=profile.encode_s,
        token_s=profile.token_s,
        context_s=profile.context_s,
        learns=learns,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How to predict: one row of the tables."""

    learns: bool
    kappa: float | None = None
    has_clients: bool = False
    restarts: bool = False


WAYS = {
    "static": Way(learns=False),
    "static, right at first": Way(learns=False, kappa=RIGHT_KAPPA),
    "learns": Way(learns=True),
    "learns, per client": Way(learns=True, has_clients=True),
}


def replay(jobs: Sequence[Served], profile: WorkersProfile, way: Way) -> dict[str, object]:
    """Errors in percent per span, and how many times the published costs changed."""
    sizes = estimator(profile, learns=way.learns, kappa=way.kappa)
    token_errors, service_errors, costs = [], [], set()
    for number, job in enumerate(jobs):
        if way.restarts and number == NUM_BEFORE:
            saved = json.dumps(sizes.state())
            sizes = estimator(profile, learns=way.learns, kappa=way.kappa)
            sizes.load_state(json.loads(saved))
        utterance = job.utterance
        client = utterance.id.partition("-")[0] if way.has_clients else None
        estimate = sizes.estimate(utterance.audio_s, language="en", client=client)
        token_errors.append(100 * abs(job.tokens - estimate.estimated_output_tokens) / job.tokens)
        service_errors.append(100 * abs(job.service_s - estimate.size_s) / job.service_s)
        whole = Job(
            id=utterance.id,
            arrival_s=float(number),
            audio_s=utterance.audio_s,
            estimate=estimate,
            language="en",
            client=client,
        )
        sizes.observe(whole, tokens=job.tokens, service_s=job.service_s, num_windows=job.num_windows)
        costs.add((sizes.encode_s, sizes.token_s, sizes.context_s))
    return {
        "tokens_percent": {name: fmean(token_errors[span]) for name, span in SPANS.items()},
        "size_percent": {name: fmean(service_errors[span]) for name, span in SPANS.items()},
        "num_costs": len(costs),
        "kappa": sizes.kappa,
        "costs_s": [sizes.encode_s, sizes.token_s, sizes.context_s],
    }


def measure(profile: WorkersProfile) -> dict[str, dict[str, object]]:
    cases = {
        "as it is": served(profile),
        "tokens x2": served(profile, token_factor=2.0),
        "machine x2 slower": served(profile, service_factor=2.0),
    }
    results = {}
    for name, jobs in cases.items():
        results |= {f"{name}: {words}": replay(jobs, profile, way) for words, way in WAYS.items()}
    results["as it is: learns, restarted"] = replay(cases["as it is"], profile, Way(learns=True, restarts=True))
    return results


def main() -> None:
    profile = load_profile("embedded-tiny")
    assert isinstance(profile, WorkersProfile)
    results = measure(profile)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps({"method": __doc__, "python": platform.python_version(), "errors": results}, indent=1) + "\n"
    )
    for what, title in (("tokens_percent", "Error of n̂, percent"), ("size_percent", "Error of size, percent")):
        table = Table(title=title)
        table.add_column("case")
        for column in SPANS:
            table.add_column(column, justify="right")
        for name, result in results.items():
            errors = result[what]
            assert isinstance(errors, dict)
            table.add_row(name, *(f"{error:.1f}" for error in errors.values()))
        Console().print(table)
    for name, result in results.items():
        print(f"{name}: {result['num_costs']} published costs, κ {result['kappa']:.2f}, {result['costs_s']}")


if __name__ == "__main__":
    main()
