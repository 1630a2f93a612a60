"""Keys, addresses, and what is open without any."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import HTTPConnection
from starlette.routing import Route

from sooner.errors import AuthenticationError, ConfigurationError
from sooner.server.access import Access, parse_key, read_keys
from sooner.server.app import make_access
from sooner.server.options import ServeOptions
from sooner.workload.recordings import clip_named

from .conftest import Running, Serve

CLIP = clip_named("austen-0880").path
ALICE, BOB, BOB_NEW, NAMELESS = "alice-0123456789abcdef", "bob-0123456789abcdef", "bob-fedcba9876543210", "x" * 16
FILE = f"""# who may use this server

{ALICE}   alice interactive
{BOB} bob
  {BOB_NEW} bob batch
{NAMELESS}
"""


def request(host: str | None = "127.0.0.1", **headers: str) -> HTTPConnection:
    return HTTPConnection(
        {
            "type": "http",
            "client": None if host is None else (host, 1),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        }
    )


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.touch(mode=0o600)
    path.write_text(FILE)
    return path


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def post(server: Running, *, headers: dict[str, str], **fields: str) -> httpx.Response:
    return server.client.post(
        "/v1/audio/transcriptions",
        data={"model": "whisper-1", **fields},
        files={"file": CLIP.read_bytes()},
        headers=headers,
    )


def test_a_file_of_keys(keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = read_keys(keys)
    short = hashlib.sha256(NAMELESS.encode()).hexdigest()[:8]
    assert [(one.name, one.highest) for one in found] == [
        ("alice", "interactive"),
        ("bob", None),
        ("bob", "batch"),
        (short, None),
    ]
    assert found[0].digest == hashlib.sha256(ALICE.encode()).digest()
    assert not any(key in repr(found) for key in (ALICE, BOB, BOB_NEW, NAMELESS)), "a key is kept"
    assert caplog.text == ""


@pytest.mark.skipif(sys.platform == "win32", reason="has no such modes")
def test_a_file_that_everybody_can_read_is_worth_a_warning(keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys.chmod(0o644)
    assert len(read_keys(keys)) == 4
    assert f"{keys} can be read by every user of this machine" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# nobody\n\n", "holds no key"),
        ("\n0123456789abcde name\n", "line 2: a key has 16 to 512 printable ASCII characters"),
        ("0123456789abcde\u00e9 name\n", "line 1: a key has 16"),
        (f"{'k' * 513}\n", "line 1: a key has 16"),
        (f"{ALICE} al/ice\n", "line 1: a name has 1 to 64 of the characters"),
        (f"{ALICE} {'a' * 65}\n", "line 1: a name has"),
        (f"{ALICE} alice urgent\n", "line 1: the priority must be one of interactive, standard, batch"),
        (f"{ALICE} alice batch please\n", "line 1: more than a key, a name and a priority"),
        (f"{ALICE} alice\n{BOB}\n{ALICE} carol\n", "line 3: this key is there before"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_by_line_and_without_the_key(
    keys: Path, text: str, message: str
) -> None:
    keys.write_text(text)
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        read_keys(keys)
    assert str(keys) in str(caught.value)
    assert ALICE not in str(caught.value)
    assert "0123456789" not in str(caught.value)


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.write_bytes(b"\xff" * 20), lambda path: None])
def test_what_is_no_file_of_keys(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "keys.txt"
    make(path)
    with pytest.raises(ConfigurationError, match="--api-keys"):
        make_access(ServeOptions(api_keys=path))


@pytest.mark.parametrize("key", ["", "   ", "short", "a b c d e f g h i j"])
def test_a_variable_without_a_key_does_not_open_the_server(key: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^SOONER_API_KEY: a key has 16"):
        make_access(ServeOptions(), api_key=key)


def test_a_key_from_the_environment_joins_those_of_the_file(keys: Path) -> None:
    access = make_access(ServeOptions(api_keys=keys), api_key=f"{'e' * 16} env")
    assert access.caller(request(authorization=f"Bearer {'e' * 16}")).client == "key:env"
    assert access.caller(request(authorization=f"Bearer {ALICE}")).client == "key:alice"


def test_a_key_is_compared_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(known: bytes, given: bytes) -> bool:
        compared.append(known)
        return known == given

    monkeypatch.setattr(hmac, "compare_digest", compare)
    known = [parse_key(f"{number:016} n{number}", where="here") for number in range(5)]
    access = Access(known, highest="standard")
    assert access.caller(request(authorization=f"bearer  {0:016} ")).client == "key:n0"
    assert compared == [key.digest for key in known]


@pytest.mark.parametrize(
    "header",
    ["", ALICE, f"Basic {ALICE}", "Bearer", "Bearer ", f"Bearer {ALICE[:-1]}", f"Bearer {ALICE} x", "Bearer \xff"],
)
def test_what_is_no_valid_key(header: str) -> None:
    access = Access([parse_key(ALICE, where="here")], highest="standard")
    with pytest.raises(AuthenticationError):
        access.caller(request(authorization=header))


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("192.0.2.7", "addr:192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "addr:2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "addr:2001:db8:1:2::/64"),
        ("fe80::1%eth0", "addr:fe80::/64"),
        ("::ffff:192.0.2.7", "addr:192.0.2.7"),
        ("a name\nwith more", "addr:unknown"),
        (None, "addr:unknown"),
    ],
)
def test_without_keys_clients_are_told_apart_by_address(host: str | None, client: str) -> None:
    caller = Access(highest="batch").caller(request(host))
    assert (caller.client, caller.highest) == (client, "batch")


def test_nothing_but_three_paths_is_open_where_keys_are_set(serve: Serve, keys: Path) -> None:
    server = serve(api_keys=keys)
    app: Any = server.background.server.config.app
    paths = {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}
    paths |= {(method, route.path) for route in app.routes if isinstance(route, Route) for method in route.methods}
    assert {("GET", "/docs"), ("GET", "/openapi.json"), ("POST", "/v1/audio/transcriptions")} <= paths
    open_paths = set()
    for method, path in sorted(paths | {("GET", path) for path in ("/", "/nowhere", "/health/", "/HEALTH")}):
        reply = server.client.request(method, re.sub(r"{.*?}", "x", path))
        if reply.status_code != 401:
            open_paths.add(path)
            continue
        assert reply.headers["www-authenticate"] == "Bearer"
        if method != "HEAD":
            assert reply.json()["error"]["code"] == "invalid_api_key"
    assert open_paths == {"/", "/health", "/ready"}
    assert server.client.get("/metrics", headers=bearer(ALICE)).status_code == 200
    assert server.client.get("/v1/queue", headers=bearer("wrong" * 5)).status_code == 401


def test_a_key_is_asked_for_before_the_body_is_read(serve: Serve, keys: Path) -> None:
    server = serve(api_keys=keys)
    with socket.create_connection(server.background.server.address, timeout=30) as connection:
        connection.sendall(
            b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
            b"Content-Type: multipart/form-data; boundary=b\r\n\r\n"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_the_client_is_the_keys_and_so_is_its_priority(
    serve: Serve, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="sooner.server.journal")
    server = serve(api_keys=keys)
    assert post(server, headers=bearer(ALICE), priority="interactive").status_code == 200
    assert post(server, headers=bearer(BOB), priority="interactive").status_code == 403
    assert post(server, headers=bearer(BOB), priority="standard").status_code == 200
    assert post(server, headers=bearer(BOB_NEW), priority="standard").status_code == 403
    assert post(server, headers=bearer("z" * 16)).status_code == 401
    assert [re.findall(r"client=(\S+) outcome=(\S+)", one.getMessage())[0] for one in caplog.records] == [
        ("key:alice", "done"),
        ("key:bob", "priority_not_open"),
        ("key:bob", "done"),
        ("key:bob", "priority_not_open"),
    ]
    assert not any(key in caplog.text for key in (ALICE, BOB, BOB_NEW))
    metrics = httpx.get(f"{server.url}/metrics", headers=bearer(ALICE)).text
    assert 'sooner_refusals_total{reason="invalid_api_key"} 1.0' in metrics


@pytest.mark.parametrize(
    ("trusted", "client"),
    [(None, "addr:127.0.0.1"), ("192.0.2.0/24", "addr:127.0.0.1"), ("127.0.0.1", "addr:203.0.113.9")],
)
def test_a_forged_address_changes_nothing_unless_a_proxy_is_trusted(
    serve: Serve, caplog: pytest.LogCaptureFixture, trusted: str | None, client: str
) -> None:
    caplog.set_level(logging.INFO, logger="sooner.server.journal")
    server = serve(trusted_proxies=trusted)
    forged = {"X-Forwarded-For": "203.0.113.9", "X-Real-IP": "203.0.113.9", "Forwarded": "for=203.0.113.9"}
    assert post(server, headers=forged).status_code == 200
    assert f" client={client} " in caplog.text


def test_one_cannot_forge_an_address_through_a_trusted_proxy(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """What the client itself wrote stands left of what the proxy added."""
    caplog.set_level(logging.INFO, logger="sooner.server.journal")
    server = serve(trusted_proxies="127.0.0.1")
    assert post(server, headers={"X-Forwarded-For": "198.51.100.1, 203.0.113.9"}).status_code == 200
    assert " client=addr:203.0.113.9 " in caplog.text
