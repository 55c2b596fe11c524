"""Accepts only requests to this server's own names, and none from pages of other sites.

A page in a browser can send requests to a server on loopback, and can make a name of its own point to that address. So
`Host` must name this server (421). If a browser sends `Origin` and `Sec-Fetch-Site`, they must name the same site
(403).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping

from resile.server.problems import Problem

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    """Can only this machine reach an address?"""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class OriginGuard:
    """Knows the names of one server."""

    def __init__(self, host: str, scheme: str) -> None:
        self._scheme = scheme
        self._names = {*_LOOPBACK, host.strip("[]").lower()}
        if not is_loopback(host):
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    def check(self, headers: Mapping[str, str], local_address: str) -> None:
        """Refuse a request for another host, or from a page of another site.

        `local_address` is the address of this machine to which the client connected; it also is a name of the server.
        """
        host = headers.get("host", "")
        name, port = _split(host, self._scheme)
        if name not in self._names and name != local_address.lower():
            raise Problem("foreign_host", "the `Host` of the request is not this server", hint="use its own name")
        origin = headers.get("origin")
        if origin is not None and not self._is_same(origin, name, port):
            raise Problem("foreign_origin", "requests from pages of other sites are refused")
        if headers.get("sec-fetch-site") == "cross-site":
            raise Problem("foreign_origin", "cross-site requests are refused")

    def _is_same(self, origin: str, name: str, port: int) -> bool:
        """Is this the origin of the server itself?"""
        scheme, _, rest = origin.partition("://")
        return scheme.lower() == self._scheme and _split(rest, scheme.lower()) == (name, port)


def _split(host: str, scheme: str) -> tuple[str, int]:
    """The name and the port of a host; the port is -1 if its text is no port."""
    name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if not colon:
        name, port = host, str(_DEFAULT_PORTS.get(scheme, -1))
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    return name.strip("[]").lower(), number
