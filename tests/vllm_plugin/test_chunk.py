"""What the API process tells the scheduler about a request, and what the scheduler makes of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner import Estimator
from sooner.vllm_plugin.chunk import ESTIMATE_KEY, UPLOAD_KEY, Chunk, chunk_of, chunks_of_upload, ticket_of

ESTIMATOR = Estimator(kappa=3.0, encode_s=0.5, token_s=0.25)


@dataclass(eq=False)
class FakeRequest:
    request_id: str = "r"
    arrival_time: float = 0.0
    priority: int = 0
    max_tokens: int = 448
    num_output_tokens: int = 0
    extra_args: dict[str, Any] | None = None
    mm_features: list[object] = field(default_factory=lambda: [object()])

    @property
    def sampling_params(self) -> Any:
        return SimpleNamespace(extra_args=self.extra_args)


@given(st.lists(st.floats(0.01, 30.0), min_size=1, max_size=40))
def test_chunks_add_up_to_their_upload(chunks_s: list[float]) -> None:
    chunks = chunks_of_upload("u", chunks_s, ESTIMATOR)
    assert [chunk.number for chunk in chunks] == list(range(len(chunks_s)))
    for chunk, chunk_s in zip(chunks, chunks_s, strict=True):
        assert chunk.tokens == max(1, int(chunk_s * 3.0))
        assert chunk.upload_tokens == sum(max(1, int(s * 3.0)) for s in chunks_s)
        assert chunk.later_tokens == sum(c.tokens for c in chunks[chunk.number + 1 :])
        assert chunk.upload_windows == len(chunks_s)
        assert chunk.later_windows == len(chunks_s) - chunk.number - 1
        assert chunk.audio_s == pytest.approx(sum(chunks_s))


def test_a_model_that_takes_ten_minutes_at_once_pays_for_all_its_windows() -> None:
    (chunk,) = chunks_of_upload("u", [600.0], ESTIMATOR)
    assert (chunk.windows, chunk.upload_windows, chunk.num_chunks) == (20, 20, 1)


@given(st.lists(st.floats(0.01, 30.0), min_size=1, max_size=10))
def test_what_was_written_is_read_back(chunks_s: list[float]) -> None:
    for chunk in chunks_of_upload("u", chunks_s, ESTIMATOR):
        sent = json.loads(json.dumps(chunk.extra_args()))
        assert chunk_of(FakeRequest(extra_args=sent)) == chunk
        assert sent[ESTIMATE_KEY] == chunk.tokens


def test_an_estimate_alone_is_taken_at_its_word() -> None:
    chunk = chunk_of(FakeRequest(request_id="x", extra_args={ESTIMATE_KEY: 7}))
    assert (chunk.upload_id, chunk.tokens, chunk.upload_tokens, chunk.windows) == ("x", 7, 7, 1)


def test_without_an_estimate_max_tokens_counts() -> None:
    text = chunk_of(FakeRequest(max_tokens=100, mm_features=[]))
    assert (text.tokens, text.windows) == (100, 0)
    assert chunk_of(FakeRequest(max_tokens=100, extra_args={"other": 1})).tokens == 100


GOOD = chunks_of_upload("u", [30.0, 5.0], ESTIMATOR)[0].extra_args()


@pytest.mark.parametrize("estimate", [None, 0, -1, 1.5, "1", True, [], {}])
def test_an_estimate_that_is_none_counts_as_absent(estimate: object) -> None:
    chunk = chunk_of(FakeRequest(extra_args=GOOD | {ESTIMATE_KEY: estimate}))
    assert (chunk.upload_id, chunk.tokens) == ("r", 448)


@pytest.mark.parametrize(
    "place",
    [
        None,
        "u",
        [],
        {},
        {"upload_id": "u"},
        GOOD[UPLOAD_KEY] | {"more": 1},
        GOOD[UPLOAD_KEY] | {"upload_tokens": 0},
        GOOD[UPLOAD_KEY] | {"upload_tokens": 1},
        GOOD[UPLOAD_KEY] | {"windows": "1"},
        GOOD[UPLOAD_KEY] | {"number": None},
        GOOD[UPLOAD_KEY] | {"later_tokens": -5},
        GOOD[UPLOAD_KEY] | {"upload_id": 5},
    ],
)
def test_a_place_that_makes_no_sense_counts_as_absent(place: object) -> None:
    chunk = chunk_of(FakeRequest(extra_args={ESTIMATE_KEY: 9, UPLOAD_KEY: place}))
    assert (chunk.upload_id, chunk.tokens, chunk.num_chunks) == ("r", 9, 1)


def chunk(**changes: Any) -> Chunk:
    facts: dict[str, Any] = {
        "upload_id": "u",
        "number": 1,
        "num_chunks": 3,
        "audio_s": 70.0,
        "windows": 1,
        "tokens": 40,
        "later_windows": 1,
        "later_tokens": 20,
        "upload_windows": 3,
        "upload_tokens": 100,
    }
    return Chunk(**(facts | changes))


def test_a_ticket_holds_the_whole_upload_and_what_remains_of_it() -> None:
    ticket = ticket_of(FakeRequest(arrival_time=5.0), chunk(), ESTIMATOR, sequence=3)
    assert (ticket.id, ticket.arrival_s, ticket.sequence) == ("u", 5.0, 3)
    assert ticket.size_s == 3 * 0.5 + 100 * 0.25
    assert ticket.remaining_s == 2 * 0.5 + 60 * 0.25


def test_decoded_tokens_are_off_and_the_encoder_pass_is_not() -> None:
    ticket = ticket_of(FakeRequest(num_output_tokens=30), chunk(), ESTIMATOR, sequence=0)
    assert ticket.size_s == 3 * 0.5 + 70 * 0.25
    assert ticket.remaining_s == 2 * 0.5 + 30 * 0.25


def test_a_request_that_outlives_its_estimate_has_a_token_left() -> None:
    alone = chunk(later_windows=0, later_tokens=0, upload_windows=1, upload_tokens=40, num_chunks=1, number=0)
    ticket = ticket_of(FakeRequest(num_output_tokens=400), alone, ESTIMATOR, sequence=0)
    assert ticket.remaining_s == ticket.size_s == 0.5 + 0.25
