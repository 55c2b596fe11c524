"""`explain`: each failure with the rules that the core considered, the one it applied, and the consequences.

    STEP (file:line:column) its status
      attempt 1: the failure
        WORD      a rule that was considered, or a consequence
        then      the effect of the failure
      attempt 2: passed

The steps of a repair, a child workflow or an item follow it, indented. Long lists are cut, with a hint.
"""

from __future__ import annotations

from collections.abc import Iterator

from resile.cli.display.output import Page, answer, escape, plural, shell_quote
from resile.cli.display.summary import input_lines
from resile.cli.parse import Call, refusal
from resile.explain.report import AttemptReport, Explanation, ItemGroup, Names, RuleReport, StepReport
from resile.model.nested import step_name
from resile.model.status import status_clause

STEPS_SHOWN_MAX = 20
ATTEMPTS_SHOWN_MAX = 10
GROUPS_SHOWN_MAX = 10
NAMES_SHOWN_MAX = 8

_WORDS = {"applied": "answers", "declined": "said no", "no budget": "no budget"}
_OUTCOMES = {"dead letter": ("a dead letter", "dead letters"), "skipped": ("left out", "left out")}
_STATUS_WORDS = {
    "canceled": "was canceled before it ran",
    "terminated": "was ended while it ran",
    "skipped": "was skipped",
    "pending_failed": "is parked",
    "disabled": "did not run",
}


def explain(call: Call) -> int:
    """Explain a run, or one step or item of it."""
    step, told = call.text("STEP"), call.text("story")
    if told is not None:
        if step is not None:
            raise refusal("--story names the step already", f"resile explain {call.run} --story {told}")
        from resile.cli.commands.inspect.look import print_events

        return print_events(call, call.client.story(call.run, told))
    document = call.client.explain(call.run, step)
    return answer(call, document, lambda found, page: _Text(found, page, step is not None).lines())


class _Text:
    """One explanation for people; in that of one step or item (`is_full`) nothing is left out."""

    def __init__(self, document: Explanation, page: Page, is_full: bool) -> None:
        self._document = document
        self._page = page
        self._is_full = is_full

    def lines(self) -> Iterator[str]:
        """The text, with lines no wider than the page."""
        for line in self._whole_lines():
            yield from self._page.wrap_column(line)

    def _whole_lines(self) -> Iterator[str]:
        """The verdict and the inputs, then the steps, then commands for more details."""
        yield self._headline()
        yield from input_lines(self._document.inputs, self._page)
        steps = self._document.steps
        for step in steps[:STEPS_SHOWN_MAX]:
            yield ""
            yield from self._step(step, "")
        canceled, run = self._document.canceled, self._document.run
        if canceled is not None and canceled.names and not self._is_full:
            yield from ("", f"never started, because the run was canceled: {_list(canceled.names)}")
        match self._document.status:
            case "parked":
                yield from ("", f"`{self._page.command(f'parked {run}')}` shows what waits, and how to judge it")
            case "interrupted":
                yield from ("", f"`{self._page.command(f'resume {run}')}` goes on")
        hidden = len(steps[STEPS_SHOWN_MAX:]) + self._document.omitted
        if hidden and not self._is_full:
            yield ""
            source = f"`{self._page.command(f'explain {run} STEP')}` shows one"
            yield f"and {plural(hidden, 'more step')}; {source}, --json of {plural(len(steps), 'step')}"

    def _headline(self) -> str:
        """The status of the run and its reason."""
        found = self._document
        status, because, failures = found.status, escape(found.because), found.failures
        head = f"run {found.run} {escape(found.workflow)} {self._page.status(status, status_clause(status))}"
        if because:
            return f"{head}: {because}"
        if not failures:
            return f"{head}: nothing {'failed' if found.exit_code == 0 else 'has failed'}"
        times = "1 attempt failed" if failures == 1 else f"{failures} attempts failed"
        return f"{head}, although {times}" if status == "completed" else f"{head}: {times}"

    def _step(self, step: StepReport, indent: str) -> Iterator[str]:
        """One job, with everything that happened to it."""
        name = self._page.paint("bold", escape(step_name(step.scope, step.step)))
        yield f"{indent}{name} ({escape(step.where)}) {self._standing(step)}"
        inner = f"{indent}  "
        for link in step.chain:
            yield f"{inner}because {escape(link.step)} {_status_words(link.status)}"
        attempts = step.attempts
        half = ATTEMPTS_SHOWN_MAX // 2
        hidden = step.omitted + max(len(attempts) - ATTEMPTS_SHOWN_MAX, 0)
        for number, attempt in enumerate(attempts):
            if hidden and number == half:
                yield f"{inner}… {hidden} more like these"
            if number < half or number >= len(attempts) - half:
                yield from self._attempt(attempt, inner)
        yield from self._inner_lines(step, inner)
        for word, names in (("canceled", step.canceled), ("skipped", step.skipped), ("waiting", step.waiting)):
            if names is not None:
                yield f"{inner}{word} because of it: {_list(names)}"

    def _standing(self, step: StepReport) -> str:
        """The status of a job, in words."""
        attempts = step.attempts
        tried = max((attempt.attempt for attempt in attempts), default=0)
        failed = any(attempt.event in ("failed", "lost") for attempt in attempts)
        match step.status:
            case "completed" if failed:
                word = "recovered" if step.recovered else "passed"
                words = f"{word} at attempt {tried}" if attempts[-1].event == "passed" else word
            case "failed":
                words = "failed" + (f" after {tried} attempts" if tried > 1 else "")
                words += ", tolerated" if step.tolerated else ""
            case status if attempts and status == "canceled":
                words = "was canceled"
            case status:
                words = _status_words(status)
        return self._page.status(step.status, words) + (f": {escape(step.why)}" if step.why else "")

    def _attempt(self, attempt: AttemptReport, indent: str) -> Iterator[str]:
        """One attempt, or another event of a job."""
        yield indent + _headline_of(attempt)
        inner = f"{indent}  "
        if self._is_full:
            yield from self._page.tail(attempt.stdout, "stdout", indent)
            yield from self._page.tail(attempt.stderr, "stderr", indent)
        yield from self._inner_lines(attempt, inner)
        for problem in attempt.problems:
            yield _line(inner, "rejected", escape(problem))
        for rule in attempt.rules:
            yield from self._rule(rule, inner)
        if attempt.then:
            yield _line(inner, "then", escape(attempt.then))

    def _rule(self, rule: RuleReport, indent: str) -> Iterator[str]:
        """One rule that the core considered, and its repair."""
        decision = rule.decision
        word = f"{_WORDS.get(decision, decision):<9}"
        shown = self._page.paint({"applied": "green", "no budget": "red"}.get(decision, "dim"), word)
        limit, why = rule.limit, escape(rule.why)
        counted = decision == "spent" or (decision == "applied" and limit > 1)
        count = f" ({rule.used} of {limit})" if counted and rule.then != "goto" else ""
        yield f"{indent}{shown} {escape(str(rule.rule))}{count}" + (f": {why}" if why else "")
        if rule.repair:
            problem = f": {escape(rule.problem)}" if rule.problem else ""
            calls = f" ({', '.join(map(escape, rule.calls))})" if rule.calls else ""
            yield _line(indent, "repair", f"{rule.repair}{calls}{problem}")
        for step in rule.inside:
            yield from self._step(step, f"{indent}  ")

    def _inner_lines(self, found: StepReport | AttemptReport, indent: str) -> Iterator[str]:
        """The steps of a child workflow and the items of a fan-out."""
        steps = found.inside
        for step in steps[:STEPS_SHOWN_MAX]:
            yield from self._step(step, indent)
        if len(steps) > STEPS_SHOWN_MAX:
            yield f"{indent}and {plural(len(steps) - STEPS_SHOWN_MAX, 'more step')}"
        # The largest groups come first.
        groups = sorted(found.items, key=lambda group: -group.names.count)
        for group in groups[:GROUPS_SHOWN_MAX]:
            yield from self._group(group, indent)
        hidden = sum(group.names.count for group in groups[GROUPS_SHOWN_MAX:])
        if hidden:
            counts = self._page.command(f"dlq stats {self._document.run}")
            yield f"{indent}and {plural(hidden, 'more item')} in other ways; `{counts}` counts the dead letters"

    def _group(self, group: ItemGroup, indent: str) -> Iterator[str]:
        """A group of items with the same outcome, the first of them in full."""
        names = group.names
        where = f"{escape(group.step)}: " if group.step else ""
        message = escape(group.message)
        yield f"{indent}{_outcome_of(group)}" + (f": {where}{message}" if message else "")
        inner = f"{indent}  "
        shown = group.items
        for item in shown if self._is_full else shown[:1]:
            executions = item.executions
            for execution in executions:
                deeper = inner
                if len(executions) > 1:
                    passed = "" if execution.then else ": passed"
                    yield f"{inner}{escape(item.item)}, execution {execution.number}{passed}"
                    deeper = f"{inner}  "
                for step in execution.inside:
                    yield from self._step(step, deeper)
                if len(executions) > 1 and execution.then:
                    yield _line(deeper, "then", escape(execution.then))
        if names.count > 1 and not self._is_full:
            other = shell_quote(names.first[1])
            yield f"{inner}`{self._page.command(f'explain {self._document.run} {other}')}` shows another"


def _headline_of(entry: AttemptReport) -> str:
    """The first line of an attempt or another event of a job."""
    attempt, message = f"attempt {entry.attempt}", escape(entry.message)
    match entry.event:
        case "passed":
            return f"{attempt}: passed" + (f", {message}" if message else "")
        case "interrupted":
            return f"{attempt}: interrupted" + (f": {message}" if message else "")
        case "lost":
            return f"{attempt}: lost: {message}"
        case "after":
            return "after its success" + (f": {message}" if message else "")
        case "judged":
            return f"judged: {message}"
        case "rejected":
            return f"expression rejected: {message}"
        case "circuit" | "redriven":
            return message
        case _ if entry.verdict == "failed":
            return f"{attempt}: its workflow {escape(entry.child)} failed" + (f": {message}" if message else "")
        case _:
            return f"{attempt}: {message or entry.kind}"


def _line(indent: str, word: str, text: str) -> str:
    return f"{indent}{word:<9} {text}"


def _status_words(status: str) -> str:
    return _STATUS_WORDS.get(status, status if status in ("completed", "failed") else f"is {status}")


def _outcome_of(group: ItemGroup) -> str:
    """The number of items in a group and their outcome."""
    count = group.names.count
    what = plural(count, "item") if count > 1 else escape(group.names.first[0])
    if group.outcome == "passed":
        return f"{what} passed" + (" in the end" if group.message else "")
    one, many = _OUTCOMES[group.outcome]
    return f"{what} {f'is {one}' if count == 1 else f'are {many}'}"


def _list(names: Names) -> str:
    first = names.first[:NAMES_SHOWN_MAX]
    hidden = names.count - len(first)
    return ", ".join(escape(name) for name in first) + (f" and {hidden} more" if hidden else "")
