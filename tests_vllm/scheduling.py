"""vLLM's real scheduler in this process, with a scripted model in place of the engine.

The scheduler, its memory and its requests are vLLM's own. The model is a function: which token comes next
depends on the request and on how many it has, so a token that is lost, doubled or out of order shows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import RequestStatus

from sooner.bench.vllm_scheduler import SchedulerSetup, make_request

__all__ = ["Engine", "abort", "make_request", "make_scheduler", "scripted_token"]


def make_scheduler(model: Path, policy: str, **setup: Any) -> Any:
    return SchedulerSetup(model=model, policy=policy, **setup).make()


def scripted_token(request_id: str, position: int) -> int:
    return (crc32(request_id.encode()) + 7 * position) % 50000


@dataclass
class Engine:
    """Drives a scheduler: one step at a time, or with a step in flight while the next is planned.

    Attributes:
        scheduler: vLLM's.
        is_async: whether a step's tokens come back only after the next was planned.
        started: request ids in the order in which they were admitted, again after each preemption.
        tokens: what each request was given so far.
    """

    scheduler: Any
    is_async: bool = False
    started: list[str] = field(default_factory=list)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    _in_flight: deque[Any] = field(default_factory=deque)

    def step(self) -> None:
        output = self.scheduler.schedule()
        self.started += [new.req_id for new in output.scheduled_new_reqs]
        self.started += sorted(output.scheduled_cached_reqs.resumed_req_ids)
        if output.total_num_scheduled_tokens:
            self._in_flight.append((output, self._sample(output)))
        idle = not output.total_num_scheduled_tokens
        while self._in_flight and (idle or len(self._in_flight) > self.is_async):
            self._answer(*self._in_flight.popleft())

    def _sample(self, output: Any) -> dict[str, int]:
        """The token that each scheduled request gets, decided when the step is: as a device would."""
        sampled = {}
        for request_id in output.num_scheduled_tokens:
            request = self.scheduler.requests[request_id]
            position = request.num_computed_tokens - request.num_prompt_tokens
            sampled[request_id] = scripted_token(request_id, position)
        return sampled

    def _answer(self, output: Any, sampled: dict[str, int]) -> None:
        ids = list(sampled)
        runner_output = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
            sampled_token_ids=[[sampled[request_id]] for request_id in ids],
        )
        for outputs in self.scheduler.update_from_output(output, runner_output).values():
            for out in outputs.outputs:
                self.tokens.setdefault(out.request_id, []).extend(out.new_token_ids)

    def run(self, max_steps: int = 20_000) -> None:
        """Until nothing is left to do. Raises ``AssertionError`` after ``max_steps``."""
        for _ in range(max_steps):
            if not self.scheduler.has_unfinished_requests() and not self._in_flight:
                return
            self.step()
        raise AssertionError(f"not done after {max_steps} steps: {self.scheduler.get_request_counts()}")


def abort(scheduler: Any, *request_ids: str) -> None:
    scheduler.finish_requests(list(request_ids), RequestStatus.FINISHED_ABORTED)
