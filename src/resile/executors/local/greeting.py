"""The first moments of a connection to a launcher that an earlier engine left: its greeting, or its dismissal."""

from __future__ import annotations

from resile.executors.local import wire
from resile.executors.local.launcher.system_calls import socket

RECEIVE_BYTES = 256 * 1024


def read_greeting(connection: socket.socket) -> tuple[list[bytes], bytes]:
    """Read the lines that a launcher sends a new engine, and the data after them; both empty if it refuses or dies."""
    text = b""
    try:
        while (end := text.find(b"\n" + wire.GREETING_END)) < 0:
            data = connection.recv(RECEIVE_BYTES)
            if not data:
                return [], b""
            text += data
    except OSError:
        return [], b""
    connection.settimeout(None)
    return text[:end].split(b"\n"), text[end + 1 + len(wire.GREETING_END) :]


def dismiss(connection: socket.socket) -> None:
    """Terminate a launcher of another epoch with its attempts, and wait until it is gone."""
    try:
        connection.sendall(wire.frame(wire.TERMINATE))
        while connection.recv(RECEIVE_BYTES):
            pass
    except OSError:
        pass
