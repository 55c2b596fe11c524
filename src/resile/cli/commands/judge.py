"""`parked` and `judge`: list the parked failures, and decide about one."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from resile.cli.display import output
from resile.cli.parse import Call, refusal
from resile.commands.documents.answers import JudgementResult, ParkedFailure, ParkedFailures
from resile.commands.judge import Judgement
from resile.model.failure import QUESTION
from resile.model.limits import size
from resile.model.nested import step_name
from resile.model.status import status_clause

if TYPE_CHECKING:
    from resile.commands.files.save_rule import RuleDraft

HISTORY_MAX = 10
PARKED_SHOWN_MAX = 10
NAMES_SHOWN_MAX = 20
# The verdict that each option belongs to.
_ONLY_WITH = {"output": "skip", "memory": "retry-with", "runtime": "retry-with"}


def list_parked(call: Call) -> int:
    """List the parked failures."""
    return output.answer(call, call.client.parked_failures(call.run), _parked_lines)


def _parked_lines(document: ParkedFailures, page: output.Page) -> Iterator[str]:
    """The first parked failures with the commands that judge them, and the names of more."""
    run, found = f"run {document.run} {output.escape(document.workflow)}", document.failures
    if not found:
        yield from page.wrap(f"{run} {status_clause(document.status)}; nothing is parked", "  ")
        return
    yield from page.wrap(f"{run}: {output.plural(len(found), 'parked failure')}", "  ")
    names = Counter(failure.step for failure in found)
    jobs = [
        failure.step if names[failure.step] == 1 and not failure.step.isdigit() else str(failure.job)
        for failure in found
    ]
    for failure, job in zip(found[:PARKED_SHOWN_MAX], jobs, strict=False):
        judge = f"judge {document.run} {output.shell_quote(job)}"
        fail = (page.command(f"{judge} fail"), "let it fail")
        answer = page.command(f"answer {judge.removeprefix('judge ')} TEXT")
        ways = (
            ((answer, "answer its question"), fail)
            if failure.signature == QUESTION
            else (
                (page.command(f"{judge} retry"), "run it again"),
                (page.command(f"{judge} retry-with --memory 8g"), "with more memory, or --runtime"),
                (page.command(f"{judge} skip"), "go on without it"),
                fail,
            )
        )
        yield from ("", *_failure(failure, page), "", *page.commands(ways))
    if rest := jobs[PARKED_SHOWN_MAX:]:
        hidden = len(rest) - NAMES_SHOWN_MAX
        more = f" and {hidden} others; --json lists all" if hidden > 0 else ""
        listed = ", ".join(map(output.escape, rest[:NAMES_SHOWN_MAX]))
        yield from ("", *page.wrap(f"and {len(rest)} more: {listed}{more}", "  "))


def _failure(failure: ParkedFailure, page: output.Page) -> list[str]:
    """One parked failure: its message, its output, every attempt."""
    head = f"{page.paint('bold', output.escape(step_name(failure.scope, failure.step)))}, job {failure.job}"
    rows = [
        [
            f"attempt {tried.attempt}",
            output.escape(tried.message),
            output.clock(output.moment(tried.started_at)),
            output.duration(tried.wall_seconds),
            size(tried.rss_bytes_max),
        ]
        for tried in failure.history[-HISTORY_MAX:]
    ]
    return [
        *page.wrap(
            f"{head}: {page.paint('red', failure.kind)} after {output.plural(failure.attempts, 'attempt')}", "  "
        ),
        *page.wrap(f"  {output.escape(failure.message)}", "  "),
        *page.wrap(f"  parked by {output.escape(output.short_rule(failure.rule))}", "  "),
        *page.tail(failure.stdout, "stdout"),
        *page.tail(failure.stderr, "stderr"),
        *page.table(rows, indent="  ", spare=(4, 2), status=None),
    ]


def judge(call: Call) -> int:
    """Decide about one parked failure, and with --resume drive the run on."""
    judgement = _judgement(call)
    _refuse_parallel(call)
    if call.flag("yes") and not call.flag("save-rule"):
        raise refusal("--yes goes with --save-rule", "resile judge RUN JOB VERDICT --save-rule --yes")
    if call.flag("save-rule") and call.server:
        raise refusal(
            "--save-rule changes a file of this machine; a server can't", "judge with --db, or write the rule"
        )
    rule = _draft_rule(call, judgement) if call.flag("save-rule") else None
    if rule is not None and rule.path and not call.flag("yes") and not _confirm(rule):
        output.say("nothing was judged, and nothing was written; --yes does both")
        return 1

    def decide() -> JudgementResult:
        """Judge, then write the rule."""
        result = call.client.judge(call.run, call.word("JOB"), judgement)
        if rule is not None and rule.path:
            from resile.commands.files.save_rule import write

            write(rule)
            output.say(f"the rule is in {rule.path}")
        return result

    return _decide(call, decide)


def _draft_rule(call: Call, judgement: Judgement) -> RuleDraft:
    """The rule that makes this judgement by itself next time; it is shown first of all."""
    from resile.commands.files.rule_words import Verdict
    from resile.commands.files.save_rule import draft

    verdict = Verdict(
        word=call.word("VERDICT"),
        output=judgement.output,
        memory=call.text("memory") or "",
        memory_bytes=judgement.memory_bytes,
        runtime=call.text("runtime") or "",
        runtime_seconds=judgement.runtime_seconds,
    )
    rule = draft(call.client.parked_step(call.run, call.word("JOB")), verdict)
    output.say(rule.text)
    return rule


def _confirm(rule: RuleDraft) -> bool:
    """Ask on the terminal, if there is one."""
    if not sys.stdin.isatty():
        return False
    sys.stderr.write(f"judge, and write this rule to {output.escape(rule.path)}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def answer(call: Call) -> int:
    """Answer the question of a step, and with --resume drive the run on."""
    _refuse_parallel(call)
    return _decide(call, lambda: call.client.answer(call.run, call.word("STEP"), call.word("TEXT")))


def _refuse_parallel(call: Call) -> None:
    """Refuse a limit for a run that a server drives on as soon as it is judged."""
    if call.server and call.whole("max-parallel") is not None:
        hint = "leave it out: the run keeps its own, which `resume --max-parallel` changes"
        raise refusal("--max-parallel is for a run that this command drives, and here the server does", hint)


def _result_lines(result: JudgementResult, page: output.Page) -> Iterator[str]:
    go_on = page.command(f"resume {result.run}")
    yield f"{_result_text(result)}; {'its engine' if result.driven else f'`{go_on}`'} goes on"


def _result_text(result: JudgementResult) -> str:
    verdict = "answered" if result.reason == "answered" else f"judged {result.verdict}"
    return f"run {result.run}: {output.escape(result.step)} (job {result.job}) is {verdict}"


def _decide(call: Call, decide: Callable[[], JudgementResult]) -> int:
    """Decide about a failure; with --resume drive the run on, like `resile resume`."""
    from resile.cli.commands.run import drive_run
    from resile.commands.start.call import ResourceLimits

    def decide_and_say() -> JudgementResult:
        """Decide, and say so before the progress of the run."""
        result = decide()
        if not call.json and (call.server or not result.driven):
            output.say(_result_text(result))
        return result

    if not call.flag("resume"):
        return output.answer(call, decide(), _result_lines)
    if call.server:
        # The server drives it on at once, so its progress is what comes after the decision.
        return drive_run(call, lambda watch: call.client.wait(call.run, watch, decide_and_say))
    result = decide_and_say()
    if result.driven:
        return output.answer(call, result, _result_lines)
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text
