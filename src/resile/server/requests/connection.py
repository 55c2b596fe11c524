"""A connection of a client. httptools parses HTTP; it has no limit for the size of a head, and accepts two hosts."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# The request line and all headers together, and the trailers of a chunked body.
HEAD_BYTES_MAX = 64 * 1024
# How many requests of a connection may wait for the answer to an earlier one.
PIPELINED_MAX = 64


class BoundedConnection(HttpToolsProtocol):
    """Answers 400 and closes the connection if a head is too large or names two hosts, or if too many requests wait.

    The parser keeps incomplete data, for example a header without an end. So the connection counts the bytes that came
    in since the parser last handed over a complete part of a request, and the bytes of all headers.
    """

    def connection_made(self, transport: object) -> None:
        """Begin to count."""
        self._kept_bytes = self._header_bytes = 0
        super().connection_made(transport)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        """Parse what came in."""
        self._kept_bytes += len(data)
        super().data_received(data)
        if self._kept_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        """Begin to count for a new request."""
        self._kept_bytes = self._header_bytes = 0
        self._has_host = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; the parser stops at an error, and the answer is 400."""
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > HEAD_BYTES_MAX:
            raise ValueError("the headers are too large")
        if name.lower() == b"host":
            # If a request names two hosts, a proxy may have used the other one.
            if self._has_host:
                raise ValueError("the request has two hosts")
            self._has_host = True
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand the request over."""
        self._kept_bytes = 0
        if len(self.pipeline) >= PIPELINED_MAX:
            raise ValueError("too many requests came before the answer to the first")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Hand a part of the body over."""
        self._kept_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Hand the end of the request over."""
        self._kept_bytes = 0
        super().on_message_complete()
