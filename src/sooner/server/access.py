"""Who asks, and what they may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from fastapi import Request

__all__ = ["PRIORITIES", "Access", "Caller", "Priority"]

Priority = Literal["interactive", "standard", "batch"]
PRIORITIES: tuple[Priority, ...] = get_args(Priority)
"""Classes from the one that is served first to the last; the index is ``Job.priority``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whose a request is.

    Attributes:
        client: what shares and limits go by: a name for the key, or the address.
        highest: the highest class of priority open to it.
    """

    client: str
    highest: Priority


class Access:
    """Tells callers apart.

    Args:
        highest: the highest class that is open to everybody.
    """

    def __init__(self, *, highest: Priority) -> None:
        self._highest = highest

    def caller(self, request: Request) -> Caller:
        """Who sent this.

        Raises:
            AuthenticationError: there are keys here, and it bears none of them.
        """
        host = "unknown" if request.client is None else request.client.host
        return Caller(client=host, highest=self._highest)
