"""Who asks, and what they may ask for.

Of keys only SHA-256 digests are kept: a key has at least 16 characters and is no password that people choose, so
a slow hash would gain nothing. Each key that comes is compared with all of them and in constant time, so that the
time of a refusal tells nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import re
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from starlette.requests import HTTPConnection

from sooner.errors import AuthenticationError, ConfigurationError

__all__ = ["PRIORITIES", "Access", "ApiKey", "Caller", "Priority", "parse_key", "read_keys"]

_log = logging.getLogger(__name__)

Priority = Literal["interactive", "standard", "batch"]
PRIORITIES: tuple[Priority, ...] = get_args(Priority)
"""Classes from the one that is served first to the last; the index is ``Job.priority``."""

_KEY = re.compile(r"[\x21-\x7e]{16,512}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MAX_FILE_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """What is kept of a key.

    Attributes:
        digest: SHA-256 of it.
        name: of its client; keys of one name are one client's.
        highest: the highest class of priority open to it; ``None`` for the one that is open to everybody.
    """

    digest: bytes
    name: str
    highest: Priority | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whose a request is.

    Attributes:
        client: what shares and limits go by: ``key:`` and the key's name, or ``addr:`` and the address.
        highest: the highest class of priority open to it.
    """

    client: str
    highest: Priority


class Access:
    """Tells callers apart.

    Args:
        keys: all that are known; where there is none, everybody is served, by address.
        highest: the highest class that is open to everybody.
    """

    def __init__(self, keys: Sequence[ApiKey] = (), *, highest: Priority) -> None:
        self._keys = tuple(keys)
        self._highest = highest

    def caller(self, request: HTTPConnection) -> Caller:
        """Who sent this. O(keys).

        Raises:
            AuthenticationError: there are keys here, and it bears none of them.
        """
        if not self._keys:
            host = "" if request.client is None else request.client.host
            return Caller(client=f"addr:{_network_of(host)}", highest=self._highest)
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(given.strip().encode("latin-1")).digest()
        found = None
        for key in self._keys:  # all of them: an early end would tell which one was nearly right
            if hmac.compare_digest(key.digest, digest):
                found = key
        if found is None or scheme.lower() != "bearer":
            raise AuthenticationError
        return Caller(client=f"key:{found.name}", highest=found.highest or self._highest)


def _network_of(host: str) -> str:
    """What of an address tells clients apart: an IPv6 host may choose among the 2^64 of its network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), 64), strict=False))


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """Read a file of keys: ``KEY [NAME [PRIORITY]]`` on a line, empty lines and those that begin with ``#`` apart.

    Raises:
        ConfigurationError: it cannot be read, a line of it is wrong, or it holds no key. It names the line, and
            never the key.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) or path.stat().st_size > _MAX_FILE_BYTES:
            raise ConfigurationError(f"--api-keys {path} must be a file of at most {_MAX_FILE_BYTES} bytes")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--api-keys {path}: {error}") from error
    if mode & stat.S_IROTH and sys.platform != "win32":
        _log.warning("--api-keys %s can be read by every user of this machine: chmod 600 it", path)
    keys: dict[bytes, ApiKey] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            key = parse_key(line, where=f"--api-keys {path}, line {number}")
            if key.digest in keys:
                raise ConfigurationError(f"--api-keys {path}, line {number}: this key is there before; drop one")
            keys[key.digest] = key
    if not keys:
        raise ConfigurationError(f"--api-keys {path} holds no key; write one a line: KEY [NAME [PRIORITY]]")
    return tuple(keys.values())


def parse_key(line: str, *, where: str) -> ApiKey:
    """One key as a line of the file has it. Raises ``ConfigurationError``, which begins with ``where``."""
    key, *more = line.split() or [""]
    if not _KEY.fullmatch(key):
        raise ConfigurationError(f"{where}: a key has 16 to 512 printable ASCII characters without a space")
    if len(more) > 2:
        raise ConfigurationError(f"{where}: more than a key, a name and a priority")
    digest = hashlib.sha256(key.encode()).digest()
    name = more[0] if more else digest.hex()[:8]
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{where}: a name has 1 to 64 of the characters A-Z a-z 0-9 . _ -")
    highest = next((one for one in PRIORITIES if more[1:] == [one]), None)
    if more[1:] and highest is None:
        raise ConfigurationError(f"{where}: the priority must be one of {', '.join(PRIORITIES)}")
    return ApiKey(digest=digest, name=name, highest=highest)
