"""The items of a fan-out, grouped: those that came to the same end, at the same step, in the same way, are told as one.

Of each group the first items are told in full, the rest by number; so a million dead letters take no memory here.
"""

from __future__ import annotations

from collections.abc import Iterator

from resile.core.actions import Note
from resile.core.fanout.naming import item_id
from resile.core.state import Job, Scope
from resile.explain.report import (
    GROUPS_MAX,
    ITEMS_TOLD_MAX,
    Execution,
    Group,
    ItemTold,
    Outcome,
    Tale,
    Told,
    everything,
)
from resile.explain.timeline import Book
from resile.explain.wording import seconds

_THEN: dict[Outcome, str] = {
    "dead letter": "kept as a dead letter",
    "skipped": "left out, as its error policy says",
    "passed": "",
}
# What makes an item worth telling of although it passed.
_NOTABLE = ("failed", "lost", "after", "redriven")
_OTHERS = "other failures"


def retried(book: Book, note: Note) -> None:
    """An item will run again."""
    book.again[note.job, note.data["item"]] = note.data


def dead_lettered(book: Book, note: Note) -> None:
    """An item is kept."""
    book.letters[note.job, note.data["item"]] = note.data


def items_over(book: Book, job: int) -> None:
    """Take down what became of the items of a job that this reaction ended, and of those that never started."""
    for number in book.state.scopes_to_drop:
        scope = book.state.scopes[number]
        if scope.kind == "item" and scope.owner == job and number not in book.over:
            book.over.add(number)
            _over(book, scope)
    if not book.letters:
        return
    owner = book.state.jobs[job]
    for label in [label for number, label in book.letters if number == job]:
        data = book.letters.pop((job, label))
        told = book.items.pop((job, label), None) or ItemTold(label)
        last = data.get("message", "")
        message = last or ("the circuit was open" if data["reason"] == "circuit_open" else "it never started")
        group = Group("dead letter", data["reason"], data.get("failed_step", ""), message, data.get("signature", ""))
        _add(book, owner, group, told, range(0))


def scopes_over(book: Book) -> None:
    """At the end of a reaction: take its items down, and forget the jobs of items and children that are over."""
    for number in book.state.scopes_to_drop:
        scope = book.state.scopes[number]
        if scope.kind == "item" and number not in book.over:
            items_over(book, scope.owner)
        book.forget(scope)
    for job in {number for number, _ in book.letters}:
        items_over(book, job)
    book.over.clear()
    book.again.clear()


def _over(book: Book, scope: Scope) -> None:
    """One execution of an item is over."""
    owner = book.state.jobs[scope.owner]
    assert scope.item is not None
    key = (owner.id, item_id(book.state, owner, scope.item))
    execution = book.executions.pop(scope.id, None)
    letter, again = book.letters.pop(key, None), book.again.pop(key, None)
    if execution is None and letter is None and again is None and key not in book.items:
        return
    told = book.items.pop(key, None) or ItemTold(scope.name)
    execution = execution or Execution(scope.number)
    told.executions.append(execution)
    broken = scope.first_failure
    if broken is not None:
        execution.message = broken.message
        # Of an item that took too long no attempt failed by itself.
        book.failures += next(_failures([execution]), None) is None
    if again is not None:
        wait = f" after {seconds(again['delay_seconds'])}" if again["delay_seconds"] else ""
        execution.then = f"execution {again['next_attempt']}{wait}"
        book.items[key] = told
        return
    outcome: Outcome = "dead letter" if letter is not None else "passed" if broken is None else "skipped"
    execution.then = _THEN[outcome]
    jobs = range(scope.first, scope.first + len(scope.waiting))
    first = next(_failures(told.executions), None)
    if outcome == "passed" and first is None and not book.is_wanted_item(told.item, jobs):
        return
    group = Group(outcome, letter["reason"] if letter is not None else "")
    if broken is not None:
        group.step, group.message, group.signature = broken.step, broken.message, broken.signature
    elif letter is not None:
        group.message = letter.get("message", "")
    elif first is not None:
        tale, failure = first
        group.step, group.message, group.signature = tale.step, failure.message, failure.signature
    _add(book, owner, group, told, jobs)


def _failures(executions: list[Execution]) -> Iterator[tuple[Tale, Told]]:
    """Everything that failed in some executions of an item, first things first; a map in it may have kept items."""
    for execution in executions:
        for tale in everything(execution.inside):
            for moment in tale.told:
                if moment.what in _NOTABLE or moment.items:
                    yield tale, moment


def _add(book: Book, owner: Job, group: Group, told: ItemTold, jobs: range) -> None:
    """Put an item into the group of its like; of too many groups the last is that of all others."""
    tale = book.tale(owner.id)
    # A map that failed in an item has no signature.
    key = (owner.id, group.outcome, group.reason, group.step, group.signature or group.message)
    found = book.groups.get(key)
    if found is None and len(tale.items) >= GROUPS_MAX:
        key = (owner.id, group.outcome, group.reason, "", _OTHERS)
        group = Group(group.outcome, group.reason, "", _OTHERS)
        found = book.groups.get(key)
    if found is None:
        found = book.groups[key] = group
        tale.items.append(group)
    found.add(told.item)
    if len(found.items) < ITEMS_TOLD_MAX or book.is_wanted_item(told.item, jobs):
        found.items.append(told)
