"""Carries out an agent's decisions about several parked failures of one run: all of them, or none.

    check every decision --> no engine drives the run: one batch of the log has all of them
                         --> an engine drives it: it gets them one after the other

All agents together may judge at most `quota` failures of a run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from msgspec import Struct, structs

from resile.commands.judge import Judgement, judge, parked_job, refuse_misfit
from resile.core.events import Judged
from resile.core.state import State
from resile.engine.clock import clock_of
from resile.engine.replay import fold_log, row_of
from resile.engine.session import Session, hold_lease
from resile.errors import ResileError
from resile.store.errors import LeaseHeld
from resile.store.server_tables import SharedStore

AGENT = "agent:"
HELD_BACK = "not carried out, because another decision is impossible; `partial: true` carries out the possible ones"


class Decision(Struct, frozen=True):
    """The judgement of one job."""

    job: int
    judgement: Judgement


class Decided(Struct, frozen=True):
    """The result for one decision: carried out, possible (in a dry run), or the reason why not."""

    job_id: int
    step: str
    action: str
    done: bool
    problem: str = ""


def judge_many(
    store: SharedStore,
    run: int,
    decisions: Sequence[Decision],
    *,
    by: str,
    quota: int,
    partial: bool = False,
    dry_run: bool = False,
) -> list[Decided]:
    """Carry out decisions about parked failures. If one is impossible, carry out none, unless `partial`."""
    state = fold_log(store, row_of(store, run))
    problems = _problems(state, run, decisions, quota - _judged_by_agents(store, run))
    if dry_run or (any(problems) and not partial):
        return [
            _result_of(state, decision, done=False, problem=problem or ("" if dry_run else HELD_BACK))
            for decision, problem in zip(decisions, problems, strict=True)
        ]
    possible = [decision for decision, problem in zip(decisions, problems, strict=True) if not problem]
    late = _carry_out(store, run, possible, by)
    return [
        _result_of(
            state, decision, done=not (problem or late.get(decision.job)), problem=problem or late.get(decision.job, "")
        )
        for decision, problem in zip(decisions, problems, strict=True)
    ]


def _judged_by_agents(store: SharedStore, run: int) -> int:
    """How many judgements of this run came from agents."""
    notes = (note for note in store.notes(run) if note.type == "step_judged")
    return sum(str(note.data.get("by", "")).startswith(AGENT) for note in notes)


def _problems(state: State, run: int, decisions: Sequence[Decision], left: int) -> list[str]:
    """Why each decision can't be carried out; empty if it can. Each one that can takes one of the `left` judgements."""
    problems: list[str] = []
    for number, decision in enumerate(decisions):
        if any(decision.job == other.job for other in decisions[:number]):
            problem = f"job {decision.job} is decided twice"
        elif problem := _problem(state, run, decision):
            pass
        elif problems.count("") >= left:
            problem = f"agents may judge no more failures of run {run}: the quota is spent"
        problems.append(problem)
    return problems


def _problem(state: State, run: int, decision: Decision) -> str:
    """Why a decision does not fit its job; empty if it fits."""
    try:
        refuse_misfit(state, parked_job(state, str(decision.job), run), decision.judgement)
    except ResileError as error:
        return error.message
    return ""


def _carry_out(store: SharedStore, run: int, decisions: Sequence[Decision], by: str) -> dict[int, str]:
    """Write the judgements to the log; return, by job, why some came too late."""
    try:
        with hold_lease(store, run) as lease:
            row = row_of(store, run)
            state = fold_log(store, row)
            now = clock_of(state).now()
            events = [
                Judged(now, decision.job, by=by, offline=True, **structs.asdict(decision.judgement))
                for decision in decisions
            ]
            late = {decision.job: _problem(state, run, decision) for decision in decisions}
            session = Session(store, row, state, env=os.environ, listener=lambda _state, _notes: None)
            timely = [event for event in events if not late[event.job]]
            if timely:
                session.record(lease, *timely)
    except LeaseHeld:
        return {decision.job: _ask(store, run, decision, by) for decision in decisions}
    tables = store.server_tables()
    if tables.submission(run) is not None:
        tables.enqueue(run, time.time())
    return late


def _ask(store: SharedStore, run: int, decision: Decision, by: str) -> str:
    """Leave a judgement for the engine that drives the run; return why it was refused."""
    try:
        judge(store, run, str(decision.job), decision.judgement, by)
    except ResileError as error:
        return error.message
    return ""


def _result_of(state: State, decision: Decision, *, done: bool, problem: str) -> Decided:
    """The result for one decision, in the words that the agent used."""
    job = state.jobs.get(decision.job)
    step = "" if job is None else state.step_of(job).name
    judgement = decision.judgement
    action = "retry_with" if judgement.memory_bytes or judgement.runtime_seconds else judgement.verdict
    return Decided(decision.job, step, action, done, problem)
