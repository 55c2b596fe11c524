"""The summary of a run for people: verdict, counts, answers to failures, failures with their output, next commands.

It is made from the JSON document of a run, so that `run` and `status` print the same; `status` adds the inputs and the
steps. It shows only the first entries from inside the items of maps; the lines of the maps have the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

from resile.cli.display import output
from resile.commands.documents.runs import RunDocument, RunJob
from resile.model.failure import QUESTION
from resile.model.nested import in_item, path_part, step_name

if TYPE_CHECKING:
    from resile.model.failure import Failure

FAILED_SHOWN_MAX = 10
# So many failed steps show what they printed, and so many of them may be inside items.
TAILS_SHOWN_MAX = 5
ITEM_TAILS_SHOWN_MAX = 3
NAME_COLUMNS_MIN = 8
NAMES_SHOWN_MAX = 5
INPUT_CHARACTERS_MAX = 200
MESSAGE_CHARACTERS_MAX = 1_000


def summary(
    document: RunDocument,
    failures_of: Callable[[Sequence[int]], dict[int, Failure]],
    page: output.Page,
    *,
    with_steps: bool = False,
) -> list[str]:
    """The lines that `resile run` prints at the end; `failures_of` finds the last failures of some jobs."""
    lines = _headline(document, page)
    if with_steps or document.maps or document.routes:
        lines += _details(document, page, with_steps)
    lines += _failed_steps("Failed", "failed", document, failures_of, page)
    lines += _failed_steps("Parked", "pending_failed", document, failures_of, page)
    commands = list(_next_commands(document, failures_of, page))
    return [*lines, "", page.paint("bold", "Next"), *page.commands(commands)] if commands else lines


def _details(document: RunDocument, page: output.Page, with_steps: bool) -> list[str]:
    """The outcome of maps and the answers to failures; `with_steps`, inputs and steps too."""
    from resile.cli.display.steps import answers, item_lines, map_lines, step_lines

    lines: list[str] = []
    if with_steps:
        lines += [*input_lines(document.inputs, page), "", *step_lines(document, page)]
    inside = [*map_lines(document, page), *(item_lines(document, page) if with_steps else ())]
    lines += ["", *inside] if with_steps and inside else inside
    return [*lines, *answers(document, page)]


def _headline(document: RunDocument, page: output.Page) -> list[str]:
    """The verdict, the duration, and the counts, which add up to the number of steps; a long name is cut."""
    status = document.status
    run = f"run {document.run}"
    took = f"{'for' if status == 'running' else 'after'} {output.duration(document.duration_seconds)}"
    room = page.columns - len(f"{run}  {status} {took}")
    name = output.fit(output.escape(document.workflow), max(room, NAME_COLUMNS_MIN))
    words = [
        page.status(word, f"{count} {word}") + (f" ({counts_of})" if counts_of else "")
        for word, count, counts_of in _counts(document)
        if count
    ]
    total = output.plural(document.steps.total, "step")
    return [
        f"{run} {name} {page.paint('bold', page.status(status))} {took}",
        *page.wrap(total + (": " + ", ".join(words) if words else ""), "  "),
    ]


def _counts(document: RunDocument) -> Iterator[tuple[str, int, str]]:
    """Each status with its number of steps, and how many of them are special."""
    counts = structs.asdict(document.steps)
    left, recovered = counts.pop("total"), counts.pop("recovered")
    for word, count in counts.items():
        left -= count
        yield word, count, f"{recovered} recovered" if word == "completed" and recovered else ""
    under_way = [job for job in document.jobs if job.scope == "root" and job.status in ("running", "recovering")]
    for word in ("running", "recovering"):
        count = min(left, sum(job.status == word for job in under_way))
        left -= count
        yield word, count, ""
    yield "waiting", left, ""


def input_lines(inputs: dict[str, Any], page: output.Page) -> list[str]:
    """The inputs of a run, one on each line, long values cut."""
    lines: list[str] = []
    for name, value in inputs.items():
        text = value if isinstance(value, str) else output.encode(value).decode()
        lines.append(page.fit(f"input {output.escape(name)}: {output.fit(output.escape(text), INPUT_CHARACTERS_MAX)}"))
    return lines


def _failed_steps(
    heading: str,
    status: str,
    document: RunDocument,
    failures_of: Callable[[Sequence[int]], dict[int, Failure]],
    page: output.Page,
) -> Iterator[str]:
    """The steps with this status: the last message, the end of what each printed, and the steps that it canceled."""
    # A later visit of the same step (a retried item or child) has the current status.
    last = {(job.scope, job.step): job for job in document.jobs}
    failed = [job for job in last.values() if job.status == status and _stands(job, document)]
    if not failed:
        return
    from resile.cli.display.steps import first_items

    yield from ("", page.paint("bold", heading))
    # Steps of the workflow itself come first: they decided the run.
    shown = sorted(first_items(failed), key=lambda job: (in_item(job.scope), job.scope != "root"))[:FAILED_SHOWN_MAX]
    found = failures_of([job.id for job in shown])
    victims = _victims(document)
    inside = 0
    for number, job in enumerate(shown):
        how = [] if job.exit_code is None else [f"exit code {job.exit_code}"]
        how.append(output.plural(job.attempts, "attempt"))
        how += ["tolerated"] if job.tolerated else []
        name = page.paint("red", output.escape(step_name(job.scope, job.step)))
        yield from page.wrap(f"  {name}: {', '.join(how)}", "      ")
        inside += in_item(job.scope)
        if failure := found.get(job.id):
            message = output.fit(output.escape(failure.message), MESSAGE_CHARACTERS_MAX)
            yield from page.wrap(f"    {message}", "      ") if message else ()
            if number < TAILS_SHOWN_MAX and inside <= ITEM_TAILS_SHOWN_MAX:
                yield from page.tail(failure.stdout, "stdout", "  ")
                yield from page.tail(failure.stderr, "stderr", "  ")
        if names := victims.get(job.id):
            yield from page.wrap(f"    canceled because of it: {_name_list(names)}", "      ")
    if len(failed) > len(shown):
        source = "`" + page.command(f"{'explain' if status == 'failed' else 'parked'} {document.run}") + "`"
        yield from page.wrap(f"  and {len(failed) - len(shown)} more; {source} shows them", "  ")


def _stands(job: RunJob, document: RunDocument) -> bool:
    """Is a failure still one? What failed inside a step that recovered is over."""
    if job.scope == "root" or in_item(job.scope):
        return True
    # The name of a scope begins with the name of the step around it.
    around = [found for found in document.jobs if found.scope == "root" and job.scope.startswith(found.step)]
    return not around or any(found.status not in ("completed", "skipped") for found in around)


def _victims(document: RunDocument) -> dict[int, list[str]]:
    """The names of the canceled steps, by the job that is the first cause."""
    causes = {job.id: job.cause.job for job in document.jobs if job.cause is not None}
    found: dict[int, list[str]] = {}
    for job in document.jobs:
        if job.status == "canceled" and job.cause is not None:
            first, seen = job.cause.job, {job.id}
            while first in causes and first not in seen:
                seen.add(first)
                first = causes[first]
            found.setdefault(first, []).append(step_name(job.scope, job.step))
    return found


def _name_list(names: list[str]) -> str:
    first = ", ".join(map(output.escape, names[:NAMES_SHOWN_MAX]))
    return f"{first} and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else first


def _next_commands(
    document: RunDocument, failures_of: Callable[[Sequence[int]], dict[int, Failure]], page: output.Page
) -> Iterator[tuple[str, str]]:
    """Useful next commands, each with a remark."""
    run, status = document.run, document.status
    if status == "failed":
        yield page.command(f"explain {run}"), "which rules answered, and why"
        culprit = _first_with_output(document)
        if culprit is not None:
            name = output.shell_quote(step_name(culprit.scope, culprit.step))
            yield page.command(f"logs {run} {name}"), "what it printed"
    if status in ("failed", "canceled"):
        yield page.command(f"rerun {run} --failed-only"), "run again what did not complete"
    if status == "parked" or (status in ("interrupted", "running") and document.steps.parked):
        # If several jobs have one name, only the id is unambiguous.
        parked = [job for job in document.jobs if job.status == "pending_failed"]
        first = parked[0]
        alike = sum(job.step == first.step for job in parked) > 1 or first.step.isdigit()
        job = str(first.id) if alike else output.shell_quote(first.step)
        yield page.command(f"parked {run}"), "what waits for judgement (exit code 4)"
        failure = failures_of([first.id]).get(first.id)
        if failure is not None and failure.signature == QUESTION:
            yield page.command(f"answer {run} {job} TEXT --resume"), "answer its question"
        else:
            yield page.command(f"judge {run} {job} retry --resume"), "or skip, or fail"
    if status == "interrupted":
        yield page.command(f"resume {run}"), "go on"
        yield page.command(f"cancel {run}"), "end it for good"
    if status == "running":
        yield page.command(f"logs {run} -f"), "follow what its steps print"
    if document.dead_letters:
        yield page.command(f"dlq list {run}"), output.plural(document.dead_letters, "dead letter")
        if status in ("completed", "failed", "canceled"):
            named = [name for name, numbers in document.maps.items() if numbers.dead_letters]
            yield from ((command, "run them again") for command in retry_commands(run, named, page))


def _first_with_output(document: RunDocument) -> RunJob | None:
    """The first failed step that ran a process: a failed map or child stands for the first failed step inside it."""
    failed = [job for job in document.jobs if job.status == "failed" and not job.tolerated]
    found = None
    inner = next((job for job in failed if job.scope == "root"), None)
    while inner is not None:
        found = inner
        path = path_part(found.step) if found.scope == "root" else f"{found.scope}/{path_part(found.step)}"
        inner = next((job for job in failed if job.scope == path or job.scope.startswith(f"{path}[")), None)
    # Without an exit code there was no process, and a map prints nothing itself.
    if found is None or found.exit_code is None or found.step in document.maps:
        return None
    return found


def retry_commands(run: int, maps: list[str], page: output.Page) -> list[str]:
    """The commands that retry dead letters: one for each map."""
    if len(maps) < 2:
        return [page.command(f"dlq retry {run}")]
    return [page.command(f"dlq retry {run} --step {output.shell_quote(name)}") for name in maps]
