"""An ended attempt becomes a failure that people can read and rules can match."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from resile.executors import outcome as evidence
from resile.executors.contract import Ended, Lost
from resile.executors.output import open_output
from resile.model.failure import Failure, LogRange
from resile.model.limits import MESSAGE_CHARACTERS_MAX, TAIL_BYTES
from tests.executors.local.driver import driving


def ended(**fields: object) -> Ended:
    """An attempt that ended in some way, without output."""
    base = {"job": 1, "attempt": 1, "started_at": 10.0, "at": 12.5, "wait_status": 0, "cpu_seconds": 0.5}
    return Ended(**{**base, "rss_bytes_max": 4096, "log": LogRange(""), **fields})  # type: ignore[arg-type]


def failure_of(**fields: object) -> Failure:
    """The failure that such an end comes to."""
    failure = evidence.outcome_of(ended(**fields), open_output("nowhere"), evidence.Limits(30.0, 1 << 30)).failure
    assert failure is not None
    return failure


def test_success_has_no_failure() -> None:
    """Exit code 0 is success, with its usage."""
    outcome = evidence.outcome_of(ended(), open_output("nowhere"))
    assert (outcome.exit_code, outcome.failure) == (0, None)
    assert (outcome.usage.wall_seconds, outcome.usage.cpu_seconds, outcome.usage.rss_bytes_max) == (2.5, 0.5, 4096)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"wait_status": 3 << 8}, ("exit", 3, None, "exit code 3")),
        ({"wait_status": 9}, ("signal", 137, 9, "killed by SIGKILL")),
        ({"wait_status": 11 | 0x80}, ("signal", 139, 11, "killed by SIGSEGV")),
        ({"wait_status": 9, "oom_kills": 1}, ("oom", 137, 9, "out of memory (killed by the kernel)")),
        ({"wait_status": 137 << 8, "oom_kills": 2}, ("oom", 137, None, "out of memory (killed by the kernel)")),
        ({"wait_status": 3 << 8, "oom_kills": 1}, ("exit", 3, None, "exit code 3")),
        ({"wait_status": 15, "reason": "timeout"}, ("timeout", 143, 15, "timed out after 30s")),
        ({"wait_status": 0, "reason": "timeout"}, ("timeout", 0, None, "timed out after 30s")),
        (
            {"wait_status": 9, "reason": "oom", "rss_bytes_max": 3 << 29},
            ("oom", 137, 9, "out of memory: it used 1.5 GiB, `resources.memory` is 1 GiB"),
        ),
        ({"wait_status": 15, "reason": "killed"}, ("canceled", 143, 15, "ended on request")),
        (
            {"spawn_error": errno.ENOENT, "spawn_stage": "exec"},
            ("spawn", None, None, "can't start the command: No such file or directory"),
        ),
        (
            {"spawn_error": errno.ENOENT, "spawn_stage": "cwd"},
            ("spawn", None, None, "can't enter the working directory: No such file or directory"),
        ),
        (
            {"spawn_error": errno.ENOSPC, "spawn_stage": "output"},
            ("spawn", 0, None, "can't write the output: No space left on device"),
        ),
    ],
)
def test_kinds(fields: dict[str, object], expected: tuple[str, int | None, int | None, str]) -> None:
    """Each way to end has its kind, exit code, signal and message."""
    failure = failure_of(**fields)
    assert (failure.kind, failure.exit_code, failure.signal, failure.message) == expected


def test_the_message_is_the_last_line_of_stderr(tmp_path: Path) -> None:
    """The last line that says something stands in the message, without colours; both tails are kept."""
    with driving(tmp_path) as driver:
        end = driver.shell(r"echo out; printf 'first\n\033[31mwrong thing\033[0m\n\n' >&2; exit 3")
    failure = evidence.outcome_of(end, open_output(driver.folder)).failure
    assert failure is not None
    assert failure.message == "exit code 3: wrong thing"
    assert (failure.stdout, failure.stderr) == ("out\n", "first\n\x1b[31mwrong thing\x1b[0m\n\n")


def test_without_stderr_stdout_speaks(tmp_path: Path) -> None:
    """Where nothing was written to stderr the last line of stdout is the best there is."""
    with driving(tmp_path) as driver:
        failure = evidence.outcome_of(driver.shell("echo bad news; exit 1"), open_output(driver.folder)).failure
    assert failure is not None
    assert failure.message == "exit code 1: bad news"


def test_tails_are_bounded_and_fit_for_json(tmp_path: Path) -> None:
    """A lot of output that is no text leaves a bounded tail of text and a bounded message."""
    with driving(tmp_path) as driver:
        end = driver.shell(r"head -c 100000 /dev/zero | tr '\0' '\377' >&2; exit 1")
    failure = evidence.outcome_of(end, open_output(driver.folder)).failure
    assert failure is not None
    assert failure.stderr == "\N{REPLACEMENT CHARACTER}" * TAIL_BYTES
    assert len(failure.message) == MESSAGE_CHARACTERS_MAX
    failure.message.encode()


def test_signatures_group_what_differs_in_details() -> None:
    """Numbers, addresses, paths and quoted names do not tell failures apart; kind, code and words do."""
    same = {
        evidence.signature_of("exit", 1, message)
        for message in (
            "exit code 1: can't open '/a/b.txt' at line 12 (0x7f00)",
            "exit code 1: can't open '/c' at line 7 (0xdeadbeef)",
        )
    }
    assert len(same) == 1
    others = {
        evidence.signature_of("exit", 2, "exit code 2: can't open 'x'"),
        evidence.signature_of("exit", 1, "exit code 1: can't close 'x'"),
        evidence.signature_of("signal", 1, "exit code 1: can't open 'x'"),
    }
    assert len(others | same) == 4


def test_a_lost_attempt_says_why() -> None:
    """Nobody knows its exit code."""
    outcome = evidence.outcome_of_lost(Lost(1, 1, 0.0, "the launcher died while it ran"))
    assert outcome.exit_code is None
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.message) == ("lost", "the launcher died while it ran")
