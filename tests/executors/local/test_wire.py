"""The wire format: what one side writes the other reads, and the bytes stay as spools on disk have them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from resile.executors.contract import Ended, Launch, Started, Withdrawn
from resile.executors.local import recovery, wire
from resile.executors.local.recovery import Author
from resile.model.failure import LogRange

LAUNCH = Launch(
    3,
    2,
    (b"sh", b"-c", b"exit 1"),
    ((b"NAME", b"a=b"), (b"EMPTY", b"")),
    b"inner",
    1.5,
    0.25,
    (b"other",),
    after=((1, 1), (2, 4)),
    memory_bytes=4096,
)


def frames_of(data: bytes) -> list[list[bytes]]:
    """The frames in these bytes, which must hold nothing else."""
    inbox = bytearray(data)
    frames = list(wire.take_frames(inbox))
    assert inbox == b""
    return frames


def test_a_start_arrives_as_it_was_sent() -> None:
    """Every field of a launch is read by the launcher as the engine wrote it."""
    sent = wire.start_frame(LAUNCH)
    assert sent is not None
    (fields,) = frames_of(sent)
    start = wire.Start(fields)
    assert (fields[0], start.key, start.argv, start.fallback) == (
        wire.START,
        b"3 2",
        [b"sh", b"-c", b"exit 1"],
        [b"other"],
    )
    assert (start.env, start.cwd) == ([b"NAME=a=b", b"EMPTY="], b"inner")
    assert (start.timeout_seconds, start.grace_seconds, start.after) == (1.5, 0.25, [b"1 1", b"2 4"])
    assert start.memory_bytes == 4096


def test_a_nul_in_a_launch_makes_no_frame() -> None:
    """A field that holds the separator can't be sent."""
    assert wire.start_frame(Launch(1, 1, (b"a\0b",))) is None


def test_a_configuration_arrives_as_it_was_sent() -> None:
    """Secrets may hold NULs and line breaks; they and everything else are read as they were written."""
    sent = (7, b"/fence", b"token", b"/folder", 4, 1700000000.25, b"/home", [b"a\0b\n", b""], [b"A=1", b"B="])
    (fields,) = frames_of(wire.configure_frame(*sent))
    assert fields[0] == wire.CONFIGURE
    names = ("number", "fence", "token", "folder", "slots", "offset", "directory", "secrets", "env")
    given = wire.Configuration(fields)
    assert tuple(getattr(given, name) for name in names) == sent


def test_frames_are_taken_whole() -> None:
    """Frames come out in order, and half a frame stays in the inbox until the rest has come."""
    last = wire.frame(wire.DRAIN)
    inbox = bytearray(wire.kill_frame(7, 1) + wire.acknowledge_frame(12) + last[:-1])
    kill, acknowledge = wire.take_frames(inbox)
    assert (kill[0], wire.decode_key(kill)) == (wire.KILL, b"7 1")
    assert (acknowledge[0], wire.decode_acknowledgement(acknowledge)) == (wire.ACKNOWLEDGE, (12, False))
    inbox += last[-1:] + wire.frame(wire.TERMINATE)
    assert (list(wire.take_frames(inbox)), inbox) == ([[wire.DRAIN], [wire.TERMINATE]], b"")


@pytest.mark.parametrize("fields", [[b"S"], [b"S", b"1", b"x", b"0", b"0", b"", b"0", b"0", b""]])
def test_a_malformed_start_is_refused(fields: list[bytes]) -> None:
    """Too few fields, and a number that is none, raise what costs the connection and not the launcher."""
    with pytest.raises(ValueError, match=r"values to unpack|invalid literal"):
        wire.Start(fields)


def test_a_frame_that_is_too_long_is_refused() -> None:
    """A length beyond 64 MiB is no frame of ours; of one with just that length the rest may still come."""
    assert list(wire.take_frames(bytearray((64 << 20).to_bytes(4, "big")))) == []
    with pytest.raises(ValueError, match=r"^$"):
        list(wire.take_frames(bytearray(((64 << 20) + 1).to_bytes(4, "big"))))


def test_a_started_line_is_read_as_it_was_written() -> None:
    """The line of a start has these bytes, and becomes this report."""
    line = wire.started_line(b"3 2", 5.25, 71, 9.5, b"t-0-1", 10, 20)
    assert line == b"S 3 2 5.250000 71 9.50 t-0-1 10 20\n"
    words = line.split()
    assert wire.read_started(words) == Started(3, 2, 5.25, 71, LogRange("launcher/t-0-1", 10, 0, 20, 0))
    assert (wire.decode_attempt(words), wire.decode_pid(words), wire.decode_born(words)) == ((3, 2), 71, 9.5)


def test_an_ended_line_is_read_as_it_was_written() -> None:
    """The line of an end has these bytes, and becomes this report."""
    line = wire.ended_line(
        b"3 2",
        5.0,
        6.5,
        (9, 0.5, 4096, 1024),
        (b"t-0-1", 10, 1, 20, 2),
        reason=b"timeout",
        output_errno=28,
        oom_kills=1,
    )
    assert line == b"E 3 2 5.000000 6.500000 9 0.500000 4096 t-0-1 10 1 20 2 timeout 28 output 1 1024\n"
    log = LogRange("launcher/t-0-1", 10, 1, 20, 2)
    report = Ended(3, 2, 5.0, 6.5, 9, 0.5, 4096, log, "timeout", 28, "output", 1, 71, 1024)
    assert wire.read_ended(line.split(), 71) == report
    assert wire.read_ended(line.split()[:-1], 71) == replace(report, io_bytes=0)


def test_an_attempt_that_could_not_start_has_no_log() -> None:
    """The line of a refusal has these bytes, and becomes an end without a segment."""
    line = wire.refused_line(b"3 2", 5.0, 2, b"exec")
    assert line == b"E 3 2 5.000000 5.000000 0 0 0 - 0 0 0 0 - 2 exec 0\n"
    assert wire.read_ended(line.split()) == Ended(3, 2, 5.0, 5.0, 0, 0.0, 0, LogRange(""), "", 2, "exec")


def test_a_withdrawn_line_is_read_as_it_was_written() -> None:
    """The line of a withdrawal has these bytes, and becomes this report."""
    line = wire.withdrawn_line(b"3 2", 5.0)
    assert line == b"W 3 2 5.000000\n"
    assert wire.read_withdrawn(line.split()) == Withdrawn(3, 2, 5.0)


def test_the_header_names_the_launcher() -> None:
    """The first line of a spool has these bytes; one of another version, or incomplete, names nobody."""
    line = recovery.header_line(Author("t", 5, 6, "boot", "wf1_r1"))
    assert line == b"H 1 t 5 6 boot wf1_r1 00000000000000000043\n"
    for one in (line, b"H 1 t 5 6 boot wf1_r1\n"):
        assert recovery.decode_author(one) == Author("t", 5, 6, "boot", "wf1_r1")
    assert recovery.decode_author(b"H 2 t 5 6 boot wf1_r1") is None
    assert recovery.decode_author(b"H 1 t 5 6 boot") is None


def test_lines_of_starts_are_known() -> None:
    """What only says that attempts begin or run may be sent a little later."""
    lines = (
        wire.begins_line(b"1 1"),
        wire.started_line(b"1 1", 0.0, 1, 0.0, b"s", 0, 0),
        wire.withdrawn_line(b"1 1", 0.0),
    )
    assert [wire.is_of_start(line) for line in lines] == [True, True, False]
