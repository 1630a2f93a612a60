"""How a request ended, in one word: for the log, the metrics and whoever reads them side by side."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.requests import ClientDisconnect

from sooner.errors import AdmissionError, AuthenticationError, ServiceClosedError
from sooner.server.errors import code_of, status_of

__all__ = ["CANCELLED", "CLIENT_LEFT", "Outcome", "has_left", "outcome_of"]

CLIENT_LEFT = "client_left"
CANCELLED = "cancelled"
_REFUSALS = (AdmissionError, AuthenticationError, ServiceClosedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a request ended.

    Attributes:
        name: ``done``, ``client_left`` or the code of the error.
        status: of the reply; 499 where nobody was left to read it.
        is_refusal: the same request may succeed at another time, or elsewhere.
    """

    name: str
    status: int
    is_refusal: bool = False


def has_left(error: BaseException) -> bool:
    """Whether an error means that the client went away."""
    return isinstance(error, (asyncio.CancelledError, ClientDisconnect))


def outcome_of(error: BaseException | None) -> Outcome:
    """The outcome of a request that ended with ``error``, ``None`` for none."""
    if error is None:
        return Outcome(name="done", status=200)
    if has_left(error):
        return Outcome(name=CLIENT_LEFT, status=499)
    return Outcome(name=code_of(error), status=status_of(error), is_refusal=isinstance(error, _REFUSALS))
