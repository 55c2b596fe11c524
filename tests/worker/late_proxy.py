"""A proxy in front of a server that may hold an answer back until something else has happened."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOLD_SECONDS_MAX = 30.0
CALL_SECONDS_MAX = 60.0


class LateProxy(ThreadingHTTPServer):
    """Passes requests on to a port of this machine; closes the connection where no server answers there."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = port
        self.port = self.server_address[1]
        # Once it is late, claims and registrations wait until the server has refused a report, and this refusal waits
        # until the worker has registered and claims.
        self.is_late = threading.Event()
        self.refused, self.registered, self.claimed = threading.Event(), threading.Event(), threading.Event()


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    server: LateProxy

    def do_GET(self) -> None:
        """Pass a request on."""
        self._pass_on()

    def do_POST(self) -> None:
        """Pass a request on, in the order that is asked for."""
        proxy = self.server
        if proxy.is_late.is_set() and self.path.endswith(("/workers", "/claim")):
            proxy.refused.wait(HOLD_SECONDS_MAX)
        self._pass_on()

    def _pass_on(self) -> None:
        proxy = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        connection = http.client.HTTPConnection("127.0.0.1", proxy.target, timeout=CALL_SECONDS_MAX)
        # The server accepts its own name only.
        headers = {**self.headers, "Host": f"127.0.0.1:{proxy.target}"}
        try:
            connection.request(self.command, self.path, body or None, headers)
            if proxy.registered.is_set() and self.path.endswith("/claim"):
                proxy.claimed.set()
            answer = connection.getresponse()
            content = answer.read()
        except OSError:
            self.close_connection = True
            return
        finally:
            connection.close()
        if proxy.refused.is_set() and self.path.endswith("/workers"):
            proxy.registered.set()
        if proxy.is_late.is_set() and self.path.endswith("/reports") and answer.status == 404:
            proxy.refused.set()
            proxy.claimed.wait(HOLD_SECONDS_MAX)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.getheader("Content-Type") or "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def late_proxy(port: int) -> Iterator[LateProxy]:
    """A proxy for the time of a block."""
    proxy = LateProxy(port)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
