"""`explain(store, row, …)`: what failed in a run, which rule answered from which line, and why it came to what it did.

The log is read as a stream and folded as an engine folds it; what is kept is bounded (tales.py). With a step, or an
item such as `process[3]`, everything about that is told, and of the rest only the way to it.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from resile.core.event_log import STATUS_NAMES
from resile.core.events import Event
from resile.explain.replay_log import hear
from resile.explain.report import Execution, Explanation, Group, ItemTold, Names, RuleTold, Tale, Told, everything
from resile.explain.timeline import Book
from resile.explain.why_not_run import never_heard_of, still_waiting
from resile.explain.wording import some
from resile.model import codec
from resile.model.fanout import FanOut
from resile.model.status import EXIT_CODES, RunStatus
from resile.model.workflow import Child, Step, Workflow
from resile.store.contract import RunRow, Store

NAMES_MAX = 10_000


def explain(store: Store, row: RunRow, status: RunStatus, wanted: str | None = None) -> Explanation | None:
    """Explain a run, or one step, job or item of it; None where it has none of that name."""
    workflow = codec.decode(store.definition(row.definition))
    events = (entry.event for entry in store.entries(row.id))
    return explained(workflow, events, row.id, status, wanted)


def explained(
    workflow: Workflow, events: Iterable[Event], run: int, status: RunStatus, wanted: str | None = None
) -> Explanation | None:
    """The same from a definition and the events of its log."""
    book = Book(workflow, wanted)
    for event in events:
        hear(book, event)
    if wanted is not None:
        for job in list(book.state.jobs.values()):
            if job.id not in book.tales and book.is_wanted(job):
                never_heard_of(book, job)
    _settle(book)
    tales = [tale for tale in book.top if _is_worth_telling(tale)] if wanted is None else _asked_for(book, wanted)
    if wanted is not None and not tales:
        return None
    return Explanation(
        run,
        workflow.name,
        status,
        None if status == "running" else EXIT_CODES[status],
        book.state.epoch,
        book.resumed,
        _verdict(book, status),
        book.failures,
        book.canceled,
        tales,
        book.more,
    )


def _settle(book: Book) -> None:
    """The log is at its end: how the jobs stand that are not over, and what waits for those that are parked."""
    for number, tale in book.tales.items():
        job = book.state.jobs.get(number)
        if job is None:
            continue
        tale.status = STATUS_NAMES[job.status]
        if tale.status == "pending_failed":
            still_waiting(book, tale)


def _is_worth_telling(tale: Tale) -> bool:
    """Did anything go other than well?"""
    plain = all(told.what == "passed" and not told.inside and not told.items for told in tale.told)
    return not plain or bool(tale.inside or tale.items or tale.status == "skipped")


def _verdict(book: Book, status: RunStatus) -> str:
    """Why a run stands as it does."""
    match status:
        case "failed" if book.state.aborted:
            return book.state.aborted
        case "failed" if book.failed_steps:
            return f"{some(book.failed_steps)} failed"
        case "completed" if book.failed_steps:
            return f"`{book.state.workflow.end.name}` says so, although {some(book.failed_steps)} failed"
        case "failed" if book.state.override:
            return f"`{book.state.workflow.end.name}` says so"
        case "canceled" if book.canceled is not None:
            reason = f": {book.canceled.reason}" if book.canceled.reason else ""
            return f"{book.canceled.by or 'somebody'} asked for it{reason}"
        case "parked":
            parked = [tale.name for tale in book.tales.values() if tale.status == "pending_failed"]
            return f"{some(parked)} wait{'s' if len(parked) == 1 else ''} for judgement"
        case _:
            return ""


def _asked_for(book: Book, wanted: str) -> list[Tale]:
    """The tales of what was asked for, and of what kept it from running."""
    found = [kept for tale in book.top if (kept := _kept(tale, wanted)) is not None]
    told = {tale.job for tale in everything(found)}
    causes = {tale.chain[-1].job for tale in everything(found) if tale.chain} - told
    return found + [book.tales[number] for number in sorted(causes) if number in book.tales]


def _kept(tale: Tale, wanted: str) -> Tale | None:
    """A tale that was asked for, or the way to those inside it that were."""
    if wanted in (tale.step, str(tale.job), tale.name):
        return tale
    told = [kept for moment in tale.told if (kept := _kept_told(moment, wanted)) is not None]
    inside, items = _kept_tales(tale.inside, wanted), _kept_groups(tale.items, wanted)
    if not (told or inside or items):
        return None
    return structs.replace(tale, told=told, inside=inside, items=items, canceled=None, skipped=None, omitted=0)


def _kept_tales(tales: list[Tale], wanted: str) -> list[Tale]:
    """Those of some tales that lead to what was asked for."""
    return [kept for tale in tales if (kept := _kept(tale, wanted)) is not None]


def _kept_told(told: Told, wanted: str) -> Told | None:
    """An attempt on the way to what was asked for."""
    inside, items = _kept_tales(told.inside, wanted), _kept_groups(told.items, wanted)
    rules = [rule for rule in (_kept_rule(rule, wanted) for rule in told.rules) if rule is not None]
    return structs.replace(told, inside=inside, items=items, rules=rules) if inside or items or rules else None


def _kept_rule(rule: RuleTold, wanted: str) -> RuleTold | None:
    """A rule whose repair leads to what was asked for."""
    inside = _kept_tales(rule.inside, wanted)
    return structs.replace(rule, inside=inside) if inside else None


def _kept_groups(groups: list[Group], wanted: str) -> list[Group]:
    """The groups with items that lead to what was asked for; those alone."""
    found = []
    for group in groups:
        items = [kept for item in group.items if (kept := _kept_item(item, wanted)) is not None]
        exact = [item for item in items if wanted == item.item or wanted.startswith(f"{item.item}/")]
        if exact:
            found.append(structs.replace(group, items=exact, names=Names(len(exact), [item.item for item in exact])))
        elif items:
            found.append(structs.replace(group, items=items))
    return found


def _kept_item(item: ItemTold, wanted: str) -> ItemTold | None:
    """An item that was asked for, or the way to what is inside it."""
    if item.item == wanted:
        return item
    executions: list[Execution] = [
        structs.replace(execution, inside=inside)
        for execution in item.executions
        if (inside := _kept_tales(execution.inside, wanted))
    ]
    return structs.replace(item, executions=executions) if executions else None


def names(workflow: Workflow) -> list[str]:
    """What can be asked for: steps by their names, those of children behind their parents, first items of maps."""
    found: list[str] = []
    _collect(workflow.steps, "", found)
    return found


def _collect(steps: tuple[Step, ...], prefix: str, found: list[str]) -> None:
    """The names of some steps and of what is inside them, up to a number."""
    for step in steps:
        if len(found) >= NAMES_MAX:
            return
        found.append(prefix + step.name)
        match step.action:
            case Child():
                _collect(step.action.workflow.steps, f"{prefix}{step.name}/", found)
            case FanOut():
                item = f"{prefix}{step.action.scope or step.name}[0]"
                found.append(item)
                _collect(step.action.steps, f"{item}/", found)
