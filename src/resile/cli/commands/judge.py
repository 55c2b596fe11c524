"""`parked` and `judge`: list the parked failures, and decide about one."""

from __future__ import annotations

import sys
from typing import Any

from resile.cli.display.output import (
    Paint,
    clock,
    columns,
    command_hint,
    command_lines,
    duration,
    fit,
    moment,
    plural,
    print_document,
    shell_quote,
    short_rule,
    size_bytes,
    table,
    write_text,
)
from resile.cli.display.output import (
    escape_control_characters as escape,
)
from resile.cli.parse import Call, refusal
from resile.commands.documents.failures import JudgementResult, ParkedFailure
from resile.commands.judge import Judgement

TAIL_LINES_MAX = 10
HISTORY_MAX = 10
# The verdict that each option belongs to.
_ONLY_WITH = {"output": "skip", "memory": "retry-with", "runtime": "retry-with"}


def list_parked(call: Call) -> int:
    """List the parked failures."""
    document = call.client.parked_failures(call.run)
    if call.json:
        print_document(document)
        return 0
    paint = Paint(call.color, sys.stdout)
    found = document.failures
    if not found:
        write_text(f"run {call.run} {escape(document.workflow)} is {document.status}; nothing is parked\n")
        return 0
    lines = [f"run {call.run} {escape(document.workflow)}: {plural(len(found), 'parked failure')}"]
    names = [failure.step for failure in found]
    for failure in found:
        known = failure.step if names.count(failure.step) == 1 and not failure.step.isdigit() else None
        lines += ["", *_failure(failure, paint), "", *_ways(call, known or str(failure.job))]
    write_text("\n".join(lines) + "\n")
    return 0


def _failure(failure: ParkedFailure, paint: Paint) -> list[str]:
    """One parked failure: its message, its output, every attempt."""
    size = columns(sys.stdout)
    where = "" if failure.scope == "root" else f" in {escape(failure.scope)}"
    head = f"{paint('bold', escape(failure.step))}{where}, job {failure.job}"
    lines = [
        f"{head}: {paint('red', failure.kind)} after {plural(failure.attempts, 'attempt')}",
        fit(f"  {escape(failure.message)}", size),
        fit(f"  parked by {escape(short_rule(failure.rule))}", size),
    ]
    for name, text in (("stdout", failure.stdout), ("stderr", failure.stderr)):
        lines += tail_lines(text, name, paint, size)
    rows = [
        [
            f"attempt {tried.attempt}",
            escape(tried.message),
            clock(moment(tried.started_at)),
            duration(tried.wall_seconds),
            size_bytes(tried.rss_bytes_max),
        ]
        for tried in failure.history[-HISTORY_MAX:]
    ]
    if rows:
        lines += [f"  {line}" for line in table([""] * 5, rows, paint, size - 2)[1:]]
    return lines


def tail_lines(text: str, name: str, paint: Paint, size: int) -> list[str]:
    """The last lines of a stream, under its name; nothing if it is empty."""
    shown = text.rstrip("\n").split("\n")
    if not text.strip():
        return []
    cut = f", last {TAIL_LINES_MAX} lines" if len(shown) > TAIL_LINES_MAX else ""
    bar = paint("dim", "|")
    return [
        f"  {paint('dim', name + cut)}",
        *(f"  {bar} {fit(escape(line), size - 4)}".rstrip() for line in shown[-TAIL_LINES_MAX:]),
    ]


def _ways(call: Call, job: str) -> list[str]:
    """The commands that judge one failure."""
    judge = f"judge {call.run} {shell_quote(job)}"
    ways = (
        (f"{judge} retry", "run it again"),
        (f"{judge} retry-with --memory 8g", "with more memory, or --runtime"),
        (f"{judge} skip", "go on without it"),
        (f"{judge} fail", "let it fail"),
    )
    return command_lines((command_hint(command, call.db), remark) for command, remark in ways)


def judge(call: Call) -> int:
    """Decide about one parked failure, and with --resume drive the run on."""
    judgement = _judgement(call)
    answer = call.client.judge(call.run, call.texts("JOB")[0], judgement)
    if call.flag("resume") and not answer.driven:
        return _resume(call, answer)
    if call.json:
        print_document(answer)
    else:
        go_on = command_hint(f"resume {call.run}", call.db)
        then = "its engine goes on" if answer.driven else f"`{go_on}` goes on"
        write_text(f"run {call.run}: {_result_text(answer)}; {then}\n")
    return 0


def _result_text(answer: JudgementResult) -> str:
    """A judgement in a few words."""
    return f"{escape(answer.step)} (job {answer.job}) is judged {answer.verdict}"


def _resume(call: Call, answer: JudgementResult) -> int:
    """Drive the run on, like `resile resume`."""
    from resile.cli.commands.run import drive
    from resile.cli.display.output import say
    from resile.commands.run import ResourceLimits

    if not call.json:
        say(f"run {call.run}: {_result_text(answer)}")
    limits = ResourceLimits(max_parallel=call.whole("max-parallel"))
    return drive(call, lambda watch: call.client.resume(call.run, limits, watch))


def _judgement(call: Call) -> Judgement:
    """The judgement in the arguments of the call."""
    verdict = call.texts("VERDICT")[0]
    for key, only in _ONLY_WITH.items():
        if call.text(key) is not None and verdict != only:
            raise refusal(f"--{key} goes with {only}, not with {verdict}", f"resile judge RUN JOB {only} --{key} …")
    memory, runtime, reason = call.size("memory"), call.duration("runtime"), call.text("reason") or ""
    match verdict:
        case "retry-with":
            if memory is None and runtime is None:
                raise refusal("retry-with needs --memory or --runtime", "resile judge RUN JOB retry-with --memory 8g")
            return Judgement(verdict="retry", reason=reason, memory_bytes=memory or 0, runtime_seconds=runtime or 0.0)
        case "retry":
            return Judgement(verdict="retry", reason=reason)
        case "skip":
            return Judgement(verdict="skip", reason=reason, output=_output(call.text("output")))
        case _:
            return Judgement(verdict="fail", reason=reason)


def _output(text: str | None) -> Any:
    """The value of a text that is JSON, else the text."""
    if text is None:
        return None
    import msgspec

    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except msgspec.DecodeError:
        return text
