"""`run --dry-run` prints the plan of a run, `--cached` and `rerun --changed` with it the steps that changed."""

from __future__ import annotations

from collections.abc import Iterator

from resile.cli.display import output
from resile.cli.parse import Call, refusal
from resile.commands.documents.changes import Changes
from resile.commands.documents.plan import PlannedStep, RunPlan
from resile.commands.start.call import RunCall
from resile.commands.start.dry_run import dry_run

# Options about what steps print and how a run ends.
_ONLY_WITH_STEPS = ("verbose", "debug", "junit")


def show_plan(call: Call, asked: RunCall) -> int:
    """Print what a run would do; nothing runs."""
    refuse_watching(call)
    if asked.cached:
        return show_changes(call, call.client.cached_changes(asked))
    plan = dry_run(asked)
    for warning in plan.warnings:
        output.say(f"resile: {warning}")
    return output.answer(call, plan, _lines)


def refuse_watching(call: Call) -> None:
    """Refuse options about what steps print, and close the launcher that no run uses."""
    for option in _ONLY_WITH_STEPS:
        if call.flag(option):
            raise refusal(f"--dry-run runs no step, so --{option} has nothing to show", "leave one of them out")
    if call.launcher is not None:
        call.launcher.socket.close()


def show_changes(call: Call, changes: Changes) -> int:
    """Print the steps that changed, one line each."""

    def lines(found: Changes, page: output.Page) -> Iterator[str]:
        if not found.steps:
            yield "nothing to do"
        for change in found.steps:
            name = page.paint("bold", output.escape(change.step))
            yield f"{name}  {change.reason}: {output.escape(change.detail)}"

    return output.answer(call, changes, lines)


def _lines(plan: RunPlan, page: output.Page) -> Iterator[str]:
    """The plan: a heading, the groups, and what stands beside them."""
    count = f"{output.plural(plan.steps, 'step')} in {output.plural(len(plan.groups), 'group')}"
    name = page.paint("bold", output.escape(plan.workflow))
    yield from page.wrap(f"{name}: {count}, at most {plan.max_parallel} at a time; nothing runs", "  ")
    for name, value in plan.inputs.items():
        yield from page.wrap(f"  input {output.escape(name)} = {output.escape(_value(value))}", "    ")
    if plan.left_out:
        yield from page.wrap(f"  left out: {', '.join(map(output.escape, plan.left_out))}", "    ")
    for number, group in enumerate(plan.groups, 1):
        together = " (in parallel)" if len(group) > 1 else ""
        yield from ("", page.paint("bold", f"{number}.{together}"))
        for step in group:
            yield from _step(step, page, "  ")
    if plan.called:
        yield from ("", page.paint("bold", "when called"))
        for step in plan.called:
            yield from _step(step, page, "  ")
    yield from ("", page.paint("bold", "at the end"))
    yield from _step(plan.end, page, "  ")


def _value(value: object) -> str:
    """The value of an input: a text as it is, other data as JSON."""
    return value if isinstance(value, str) else output.encode(value).decode()


def _step(step: PlannedStep, page: output.Page, indent: str) -> Iterator[str]:
    """One step: its name and conditions, what it runs, and the steps inside it."""
    about = []
    if step.needs:
        about.append(f"after {', '.join(step.needs)}")
    if step.arcs_from:
        about.append(f"if an arc of {', '.join(step.arcs_from)} leads here")
    if step.when is not None:
        about.append(f"when {step.when}")
    heading = f"{indent}{page.paint('bold', output.escape(step.step))}  {step.action}"
    yield from page.wrap(heading + (output.escape(f"  ({'; '.join(about)})") if about else ""), indent + "    ")
    for line in step.runs.rstrip("\n").split("\n") if step.runs else ():
        yield from page.wrap(f"{indent}    {output.escape(line)}", indent + "      ")
    for inner in step.steps:
        yield from _step(inner, page, indent + "    ")
