"""What attempts write is kept byte for byte, each in its own range."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from resile.engine.secrets import Hidden
from resile.executors.contract import Ended, OutputLost, Stream
from resile.executors.output import open_output
from resile.model.failure import LogRange

from .driver import driving, sh, wait_for

STREAMS: tuple[Stream, ...] = ("out", "err")


def test_ranges_of_one_slot_do_not_mix(tmp_path: Path) -> None:
    """Attempts that share a segment each have what they wrote, and the ranges follow each other."""
    with driving(tmp_path, slots=1) as driver:
        ends = driver.run(*(sh(job, f"echo out {job}; echo err {job} >&2") for job in range(1, 4)))
    assert [driver.out(ends[job]) for job in range(1, 4)] == [b"out %d\n" % job for job in range(1, 4)]
    assert [driver.err(ends[job]) for job in range(1, 4)] == [b"err %d\n" % job for job in range(1, 4)]
    assert [ends[job].log.out_offset for job in range(1, 4)] == [0, 6, 12]
    assert len({ends[job].log.segment for job in range(1, 4)}) == 1


def test_who_follows_an_attempt_sees_nothing_of_the_next_one(tmp_path: Path) -> None:
    """The follower knows only where the output began; the end of the attempt is in the launcher's records."""
    with driving(tmp_path, slots=1) as driver:
        ends = driver.run(*(sh(job, f"echo out {job}; echo err {job} >&2") for job in range(1, 4)))
        for job, ended in ends.items():
            began = replace(ended.log, out_length=0, err_length=0)
            for stream in STREAMS:
                follow = partial(driver.executor.follow_output, began, stream, job=job, attempt=1)
                assert follow(0, 100) == f"{stream} {job}\n".encode()
                assert (follow(4, 100), follow(0, 3), follow(6, 100)) == (f"{job}\n".encode(), stream.encode(), b"")


def test_opening_the_standard_streams_again_destroys_nothing(tmp_path: Path) -> None:
    """`> /dev/stderr` and `tee /dev/stderr` truncate a file that stands there; a pipe does not care."""
    with driving(tmp_path, slots=1) as driver:
        first = driver.shell("echo kept; echo kept >&2", job=1)
        text = "echo a > /dev/stderr; echo b | tee /dev/stderr; echo c > /dev/stdout; echo d >&2"
        second = driver.run(sh(2, text))[2]
    assert (driver.out(first), driver.err(first)) == (b"kept\n", b"kept\n")
    assert (driver.out(second), driver.err(second)) == (b"b\nc\n", b"a\nb\nd\n")


def test_bytes_survive(tmp_path: Path) -> None:
    """Invalid UTF-8 and NULs come back as they were written."""
    with driving(tmp_path) as driver:
        ended = driver.shell(r"printf '\377\000\376\303\050'")
    assert driver.out(ended) == b"\xff\x00\xfe\xc3\x28"


def test_a_megabyte_on_both_streams(tmp_path: Path) -> None:
    """More than a pipe holds, on both streams at once, is all there."""
    with driving(tmp_path) as driver:
        ended = driver.shell(
            "head -c 1000000 /dev/zero | tr '\\0' e >&2 & head -c 1000000 /dev/zero | tr '\\0' o; wait"
        )
    assert driver.out(ended) == b"o" * 1_000_000
    assert driver.err(ended) == b"e" * 1_000_000
    assert driver.executor.read_output(ended.log, "out", -10) == b"o" * 10
    assert driver.executor.read_output(ended.log, "err", 0, 5) == b"e" * 5


def test_a_pipe_that_was_made_non_blocking_is_whole_again(tmp_path: Path) -> None:
    """What one attempt does to the pipe's flags, as node does, is not the next one's surprise."""
    change = "import os; os.set_blocking(1, False)"
    with driving(tmp_path, slots=1) as driver:
        driver.shell(f"python3 -c '{change}'", job=1)
        ended = driver.run(sh(2, "python3 -c 'import os; print(os.get_blocking(1))'"))[2]
    assert driver.out(ended) == b"True\n"


def test_a_range_counts_from_the_beginning_or_the_end(tmp_path: Path) -> None:
    """Like a slice of the whole; the output of another attempt in the same file is no part of it."""
    whole = b"abcde"
    with driving(tmp_path, slots=1) as driver:
        driver.shell("printf before", job=1)
        ended = driver.shell("printf abcde", job=2)
        driver.shell("printf after", job=3)
    for start in range(-6, 7):
        read = driver.executor.read_output(ended.log, "out", start)
        assert (start, read) == (start, whole[start:])
        read = driver.executor.read_output(ended.log, "out", start, 2)
        assert (start, read) == (start, whole[start:][:2])


def test_a_range_that_is_not_all_there_is_an_error(tmp_path: Path) -> None:
    """It has what can be read of a file that is gone or short; a part that is whole, and nothing, can be read."""
    (tmp_path / "short.o").write_bytes(b"12345")
    output = open_output(str(tmp_path))
    for segment, data in (("gone", b""), ("short", b"345")):
        with pytest.raises(OutputLost) as lost:
            output.read_output(LogRange(segment, 2, 10, 0, 0), "out")
        assert lost.value.data == data
    assert output.read_output(LogRange("short", 2, 10, 0, 0), "out", 1, 2) == b"45"
    assert output.read_output(LogRange("gone", 2, 10, 0, 0), "err") == b""
    assert output.read_output(None, "out") == b""


def test_secrets_are_redacted_on_their_way_to_the_disk(tmp_path: Path) -> None:
    """A secret, its longer lines and one that comes in two writes are stars; the raw bytes are in no file."""
    secrets = Hidden({"a": "hunter2hunter2", "b": "first-line\nsecond-line\nab"}).listed
    text = (
        "printf 'x hunter2'; sleep 0.05; printf 'hunter2 y\\n'; printf 'first-line\\nsecond-line\\nab z\\n' >&2;"
        "echo just first-line and ab; printf hunter2"
    )
    with driving(tmp_path, secrets=secrets) as driver:
        ended = driver.shell(text)
    assert driver.out(ended) == b"x *** y\njust *** and ab\nhunter2"
    assert driver.err(ended) == b"*** z\n"
    files = [path.read_bytes() for path in (tmp_path / "launcher").glob("*") if path.is_file()]
    assert not any(secret in content for content in files for secret in (b"hunter2hunter2", b"first-line"))


def test_output_with_secrets_is_flushed_as_it_comes(tmp_path: Path) -> None:
    """Only what may begin a secret is kept back while the attempt runs."""
    os.mkfifo(tmp_path / "gate")
    with driving(tmp_path, secrets=(b"topsecret",)) as driver:
        driver.executor.start([sh(1, "echo ready; printf tops; cat gate")])
        started = driver.started(1)
        segment = Path(driver.folder, started.log.segment + ".o")
        wait_for(lambda: segment.read_bytes() == b"ready\n")
        (tmp_path / "gate").write_text("ecret!")
        ended = driver.until_count(Ended, 1)[0]
        assert isinstance(ended, Ended)
        assert driver.out(ended) == b"ready\n***!"
