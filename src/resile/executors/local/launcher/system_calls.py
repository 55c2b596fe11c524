"""The launcher's system calls: its socket, its standard streams, the subreaper, process groups.

This is the only import of private modules: the C parts of `socket` and `signal`. The public modules make enumerations
of all constants, which costs 3 ms and 2 ms of the 60 ms of CPU time that a run with one step takes.

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

import _signal as signal
import _socket as socket
import posix
import sys

__all__ = ("signal", "socket")

SOCKET_NAME = b"socket"
PR_SET_CHILD_SUBREAPER = 36
BACKLOG = 4
CONNECT_SECONDS_MAX = 5.0


def take_stdin() -> int:
    """Take the engine's socket from standard input, put /dev/null there, and close all other inherited descriptors."""
    try:
        inherited = [int(name) for name in posix.listdir("/proc/self/fd") if int(name) > 2]
    except OSError:
        inherited = []
    for descriptor in inherited:
        posix.closerange(descriptor, descriptor + 1)
    connection = posix.dup(0)
    null = posix.open(b"/dev/null", posix.O_RDWR | posix.O_CLOEXEC)
    posix.dup2(null, 0)
    posix.close(null)
    return connection


def become_subreaper() -> bool:
    """Adopt the orphans of our descendants; False if the system can't do that."""
    try:
        from ctypes import CDLL

        return bool(CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, OSError):
        return False


def open_children() -> int:
    """Open the kernel's list of our children, for many reads; -1 if the kernel has no such list."""
    pid = posix.getpid()
    try:
        return posix.open(b"/proc/%d/task/%d/children" % (pid, pid), posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return -1


def socket_path(folder: int) -> bytes:
    """A path to the socket in an open folder that always fits into the 108 bytes that a socket's path may have."""
    return b"/proc/self/fd/%d/%s" % (folder, SOCKET_NAME)


def listen(path: bytes) -> int:
    """Create the socket through which a later engine connects."""
    unlink_socket(path)
    folder = posix.open(path, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
    try:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The socket's file gets this mode in spite of the umask.
        posix.fchmod(listener.fileno(), 0o600)
        listener.bind(socket_path(folder))
        listener.listen(BACKLOG)
        listener.setblocking(False)
        return listener.detach()
    finally:
        posix.close(folder)


def connect(path: bytes) -> socket.socket | None:
    """Connect to the living launcher of a folder; None if there is none.

    Raises PermissionError if a process of another user listens there: it would get our environment.
    """
    try:
        folder = posix.open(path, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
    except OSError:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A stopped launcher accepts no connection, and when its backlog is full, the next would wait for ever.
    connection.settimeout(CONNECT_SECONDS_MAX)
    try:
        connection.connect(socket_path(folder))
        connection.settimeout(None)
    except OSError:
        connection.close()
        return None
    finally:
        posix.close(folder)
    if peer_user(connection) != posix.geteuid():
        connection.close()
        raise PermissionError
    return connection


def peer_user(connection: socket.socket) -> int:
    """The user id of the process at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def accept(listener: int) -> int:
    """Accept the next connection from our own user or root; -1 if there is none."""
    server = socket.socket(fileno=listener)
    try:
        descriptor, _ = server._accept()  # type: ignore[attr-defined]
    except OSError:
        return -1
    finally:
        server.detach()
    peer = socket.socket(fileno=descriptor)
    if peer_user(peer) not in (0, posix.geteuid()):
        peer.close()
        return -1
    return peer.detach()


def unlink_socket(path: bytes) -> None:
    """Remove the socket if it exists."""
    try:
        posix.unlink(path + b"/" + SOCKET_NAME)
    except OSError:
        return


def signal_group(leader: int, number: int) -> None:
    """Signal the group of a leader that has not been reaped, so that no other process can have its pid."""
    try:
        posix.killpg(leader, number)
    except OSError:
        return


def group_exists(leader: int) -> bool:
    """Does this process group have members?"""
    try:
        posix.killpg(leader, 0)
    except OSError:
        return False
    return True


def take_exit(pid: int) -> None:
    """Reap a process that has ended, if it is our child."""
    try:
        posix.waitpid(pid, posix.WNOHANG)
    except ChildProcessError:
        return


def redirect_errors(folder: bytes, token: bytes) -> None:
    """Redirect stderr to TOKEN.crash next to the spool."""
    if folder:
        flags = posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND | posix.O_CLOEXEC
        descriptor = posix.open(folder + b"/" + token + b".crash", flags, 0o600)
        posix.dup2(descriptor, 2)
        posix.close(descriptor)
