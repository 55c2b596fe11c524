"""Turns an ended attempt into an outcome: wait status and usage in, kind and message out.

spawn error            spawn      it did not start, or its output could not be stored
reason "timeout"       timeout    even if it exited with 0 after SIGTERM
reason "oom"           oom        the executor ended it, because it used more memory than its step may
reason "killed"        canceled   the engine killed it
SIGKILL (or 137)       oom        if the kernel killed it because memory ran out
another signal         signal     exit code 128 + N
exit code not 0        exit
exit code 0                       success
"""

from __future__ import annotations

import os

from msgspec import Struct

from resile.executors.contract import Ended, Lost, OutputReader, readable_output
from resile.model.failure import FAILURE_KINDS, Failure, FailureKind, Kind, Outcome, Usage
from resile.model.limits import MESSAGE_CHARACTERS_MAX, TAIL_BYTES, size

SIGKILL = 9
SIGNATURE_CHARACTERS = 16
_STAGES = {
    "cwd": "can't enter the working directory",
    "exec": "can't start the command",
    "output": "can't write the output",
}


class Limits(Struct, frozen=True, gc=False):
    """The limits of an attempt, for the message if it exceeded one; 0 is no limit."""

    timeout_seconds: float = 0.0
    memory_bytes: int = 0


NO_LIMITS = Limits()


def outcome_of(ended: Ended, output: OutputReader, limits: Limits = NO_LIMITS, directory: str = "") -> Outcome:
    """The outcome of an ended attempt; `output` reads the tails of its streams for a failure.

    `directory` is its working directory, for the message of a failed start.
    """
    usage = Usage(max(0.0, ended.at - ended.started_at), ended.cpu_seconds, ended.rss_bytes_max, ended.io_bytes)
    code = None if ended.spawn_error and ended.spawn_stage != "output" else exit_code(ended.wait_status)
    if code == 0 and not ended.reason and not ended.spawn_error:
        return Outcome(0, None, usage, ended.log)
    stdout = decode_text(readable_output(output, ended.log, "out", -TAIL_BYTES))
    stderr = decode_text(readable_output(output, ended.log, "err", -TAIL_BYTES))
    kind = kind_of(ended)
    message = message_of(ended, kind, code, stderr or stdout, limits, directory)
    signal = ended.wait_status & 0x7F or None
    failure = Failure(kind, message, code, signal, stdout, stderr, signature_of(kind, code, message))
    return Outcome(code, failure, usage, ended.log)


def outcome_of_lost(report: Lost) -> Outcome:
    """The outcome of an attempt whose end is unknown."""
    message = report.why
    failure = Failure(Kind.LOST, message, signature=signature_of(Kind.LOST, None, message))
    return Outcome(None, failure, log=report.log)


def exit_code(wait_status: int) -> int:
    """The exit code; 128+N after signal N, as in a shell."""
    signal = wait_status & 0x7F
    return 128 + signal if signal else wait_status >> 8 & 0xFF


def kind_of(ended: Ended) -> FailureKind:
    """The kind of a failed attempt."""
    if ended.spawn_error:
        return Kind.SPAWN
    if ended.reason == "timeout":
        return Kind.TIMEOUT
    if ended.reason == "oom":
        return Kind.OOM
    if ended.reason == "killed":
        return Kind.CANCELED
    if ended.oom_kills and exit_code(ended.wait_status) == 128 + SIGKILL:
        return Kind.OOM
    return Kind.SIGNAL if ended.wait_status & 0x7F else Kind.EXIT


def message_of(
    ended: Ended, kind: FailureKind, code: int | None, output: str, limits: Limits = NO_LIMITS, directory: str = ""
) -> str:
    """The message of a failed attempt: one line."""
    if ended.evidence:
        return ended.evidence[:MESSAGE_CHARACTERS_MAX]
    match kind:
        case Kind.SPAWN:
            where = f" {directory}" if ended.spawn_stage == "cwd" and directory else ""
            text = f"{_STAGES[ended.spawn_stage]}{where}: {os.strerror(ended.spawn_error)}"
        case Kind.TIMEOUT:
            limit = limits.timeout_seconds
            text = FAILURE_KINDS[kind].wording + (f" after {seconds(limit)}" if limit else "")
        case Kind.OOM if ended.reason and limits.memory_bytes:
            # The cgroup of an old kernel does not have the peak.
            peak = max(ended.rss_bytes_max, limits.memory_bytes)
            text = f"out of memory: it used {size(peak)}, `resources.memory` is {size(limits.memory_bytes)}"
        case Kind.CANCELED | Kind.OOM:
            text = FAILURE_KINDS[kind].wording
        case Kind.SIGNAL:
            text = f"killed by {signal_name(ended.wait_status & 0x7F)}"
        case _:
            last = last_line(output)
            text = f"exit code {code}: {last}" if last else f"exit code {code}"
    return text[:MESSAGE_CHARACTERS_MAX]


def seconds(value: float) -> str:
    """A duration in seconds: 30s, 0.5s."""
    return f"{value:g}s"


def signal_name(number: int) -> str:
    """The name of a signal, such as SIGTERM; `signal 35` if it has none."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def decode_text(data: bytes) -> str:
    """Decode output to text that any JSON reader accepts: invalid UTF-8 and NULs become the replacement character."""
    return data.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def last_line(text: str) -> str:
    """The last line that is not blank, without terminal colours and control characters."""
    import re

    for line in reversed(text.splitlines()):
        plain = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]", "", line)
        clean = "".join(character for character in plain if character.isprintable()).strip()
        if clean:
            return clean
    return ""


def signature_of(kind: FailureKind, code: int | None, message: str) -> str:
    """A digest that ignores numbers, addresses, paths and quoted names, so that similar failures have the same one."""
    import hashlib
    import re

    text = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "Q", message)
    text = re.sub(r"(?:[\w.~-]*/)+[\w.~-]*", "P", text)
    text = re.sub(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]{8,}\b", "N", text)
    text = re.sub(r"\d+", "N", text)
    text = " ".join(text.lower().split())
    return hashlib.sha256(f"{kind} {code} {text}".encode()).hexdigest()[:SIGNATURE_CHARACTERS]
