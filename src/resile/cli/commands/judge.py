"""`parked` and `judge`: list the parked failures, and decide about one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from resile.cli.display import output
from resile.cli.parse import Call, refusal
from resile.commands.documents.answers import JudgementResult, ParkedFailure, ParkedFailures
from resile.commands.judge import Judgement

HISTORY_MAX = 10
# The verdict that each option belongs to.
_ONLY_WITH = {"output": "skip", "memory": "retry-with", "runtime": "retry-with"}


def list_parked(call: Call) -> int:
    """List the parked failures."""
    return output.answer(call, call.client.parked_failures(call.run), _parked_lines)


def _parked_lines(document: ParkedFailures, page: output.Page) -> Iterator[str]:
    """Every parked failure, with the commands that judge it."""
    run, found = f"run {document.run} {output.escape(document.workflow)}", document.failures
    if not found:
        yield f"{run} is {document.status}; nothing is parked"
        return
    yield f"{run}: {output.plural(len(found), 'parked failure')}"
    names = [failure.step for failure in found]
    for failure in found:
        is_clear = names.count(failure.step) == 1 and not failure.step.isdigit()
        judge = f"judge {document.run} {output.shell_quote(failure.step if is_clear else str(failure.job))}"
        ways = (
            (page.command(f"{judge} retry"), "run it again"),
            (page.command(f"{judge} retry-with --memory 8g"), "with more memory, or --runtime"),
            (page.command(f"{judge} skip"), "go on without it"),
            (page.command(f"{judge} fail"), "let it fail"),
        )
        yield from ("", *_failure(failure, page), "", *output.command_lines(ways))


def _failure(failure: ParkedFailure, page: output.Page) -> list[str]:
    """One parked failure: its message, its output, every attempt."""
    where = "" if failure.scope == "root" else f" in {output.escape(failure.scope)}"
    head = f"{page.paint('bold', output.escape(failure.step))}{where}, job {failure.job}"
    rows = [
        [
            f"attempt {tried.attempt}",
            output.escape(tried.message),
            output.clock(output.moment(tried.started_at)),
            output.duration(tried.wall_seconds),
            output.size_bytes(tried.rss_bytes_max),
        ]
        for tried in failure.history[-HISTORY_MAX:]
    ]
    return [
        f"{head}: {page.paint('red', failure.kind)} after {output.plural(failure.attempts, 'attempt')}",
        page.fit(f"  {output.escape(failure.message)}"),
        page.fit(f"  parked by {output.escape(output.short_rule(failure.rule))}"),
        *page.tail(failure.stdout, "stdout"),
        *page.tail(failure.stderr, "stderr"),
        *page.table(rows, indent="  "),
    ]


def judge(call: Call) -> int:
    """Decide about one parked failure, and with --resume drive the run on."""
    result = call.client.judge(call.run, call.word("JOB"), _judgement(call))
    if call.flag("resume") and not result.driven:
        return _resume(call, result)
    return output.answer(call, result, _result_lines)


def _result_lines(result: JudgementResult, page: output.Page) -> Iterator[str]:
    go_on = page.command(f"resume {result.run}")
    yield f"{_result_text(result)}; {'its engine' if result.driven else f'`{go_on}`'} goes on"


def _result_text(result: JudgementResult) -> str:
    return f"run {result.run}: {output.escape(result.step)} (job {result.job}) is judged {result.verdict}"


def _resume(call: Call, result: JudgementResult) -> int:
    """Drive the run on, like `resile resume`."""
    from resile.cli.commands.run import drive_run
    from resile.commands.run import ResourceLimits

    if not call.json:
        output.say(_result_text(result))
    limits = ResourceLimits(max_parallel=call.whole("max-parallel"))
    return drive_run(call, lambda watch: call.client.resume(call.run, limits, watch))


def _judgement(call: Call) -> Judgement:
    """The judgement in the arguments of the call."""
    verdict = call.word("VERDICT")
    for key, only in _ONLY_WITH.items():
        if call.text(key) is not None and verdict != only:
            raise refusal(f"--{key} goes with {only}, not with {verdict}", f"resile judge RUN JOB {only} --{key} …")
    memory, runtime, reason = call.size("memory"), call.duration("runtime"), call.word("reason")
    match verdict:
        case "retry-with":
            if memory is None and runtime is None:
                raise refusal("retry-with needs --memory or --runtime", "resile judge RUN JOB retry-with --memory 8g")
            return Judgement(verdict="retry", reason=reason, memory_bytes=memory or 0, runtime_seconds=runtime or 0.0)
        case "retry" | "fail":
            return Judgement(verdict=verdict, reason=reason)
        case _:
            return Judgement(verdict="skip", reason=reason, output=_output(call.text("output")))


def _output(text: str | None) -> Any:
    """The value of a text that is JSON, else the text."""
    if text is None:
        return None
    import msgspec

    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except msgspec.DecodeError:
        return text
