"""A server on this machine for playbooks that make requests: it serves pages, and keeps what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import msgspec


class Pages(BaseHTTPRequestHandler):
    """Serves five numbers in pages of two; `flaky` ones break once. `known` is who those were that asked."""

    asked: ClassVar[list[str]] = []
    broken: ClassVar[set[str]] = set()
    known: ClassVar[list[dict[str, str | None]]] = []

    def do_GET(self) -> None:
        """One page."""
        self.asked.append(self.path)
        self.known.append({name: self.headers[name] for name in ("Authorization", "X-API-Key", "X-Key")})
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        page = int(query.get("page", 1))
        if query.get("flaky") == str(page) and self.path not in self.broken:
            self.broken.add(self.path)
            self.answer(503, {})
            return
        numbers = list(range(page * 2 - 1, min(page * 2, 5) + 1))
        self.answer(200, {"items": numbers, "paging": {"page": page, "more": page < 3}})

    def do_POST(self) -> None:
        """Keep what is sent."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append(f"{self.path} {self.headers['Content-Type']} {body}")
        self.answer(201, {"took": True})

    def answer(self, status: int, data: Any) -> None:
        """A status with JSON."""
        text = msgspec.json.encode(data)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[str]:
    """The address of such a server, as long as it runs."""
    Pages.asked.clear()
    Pages.broken.clear()
    Pages.known.clear()
    made = HTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    thread.join()
    made.server_close()
