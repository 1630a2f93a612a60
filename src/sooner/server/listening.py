"""The sockets that the server listens on, bound before anything slow is done: a port in use shows at once."""

from __future__ import annotations

import errno
import socket
import sys

from sooner.errors import ConfigurationError

__all__ = ["bind"]


def bind(host: str, port: int) -> list[socket.socket]:
    """Bind one socket to each address of ``host``.

    Args:
        host: name or address.
        port: 0 for a free one, the same at all addresses.

    Raises:
        ConfigurationError: there is no such address here, the port is in use, or it is not allowed.
    """
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            one = socket.socket(family, kind, protocol)
            sockets.append(one)
            if sys.platform != "win32":  # there it would share the port with whoever has it
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:  # the IPv4 addresses of a name have a socket of their own
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((address[0], port, *address[2:]))
            port = one.getsockname()[1]
    except OSError as error:
        for one in sockets:
            one.close()
        raise ConfigurationError(_reason(error, host, port)) from error
    return sockets


def _reason(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use on {host}; choose another with --port"
    return f"cannot listen on port {port} of {host}: {error.strerror}; choose others with --host and --port"
