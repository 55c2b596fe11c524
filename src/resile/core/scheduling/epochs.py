"""Begins a run and each later epoch: counts the open jobs and wakes those without open needs."""

from __future__ import annotations

from resile.core.reaction import Reaction
from resile.core.scheduling.dependencies import wake_joined, wake_or_join
from resile.core.scheduling.scopes import keep_scope
from resile.core.state import ROOT, TIMES, Job, Queue, Scope
from resile.core.transitions import set_status
from resile.model.status import BLOCKED, COMPLETED, DISABLED


def open_root(reaction: Reaction, because: int) -> None:
    """Count the open jobs of the root scope and wake those without open needs.

    Jobs that an earlier epoch completed count as done for their dependents.
    """
    state = reaction.state
    plan = state.plan
    scope = Scope(ROOT, "root", 1, list(plan.waiting), times=bytearray(TIMES.size * len(plan.steps)))
    kept = state.scopes.get(ROOT)
    if kept is not None:
        scope.values = kept.values
    state.scopes = {ROOT: scope}
    for number, step in enumerate(plan.steps[: plan.end]):
        job = state.jobs[number + 1]
        if step.called_only:
            set_status(job, DISABLED)
        elif job.status is COMPLETED:
            if kept is not None:
                place = slice(TIMES.size * number, TIMES.size * (number + 1))
                scope.times[place] = kept.times[place]
            for dependent in plan.dependents[number]:
                scope.waiting[dependent] -= 1
        else:
            scope.open += 1
    for number in range(plan.end):
        job = state.jobs[number + 1]
        reached = number not in plan.arc_targets or job.tokens
        if job.status is BLOCKED and not scope.waiting[number] and reached:
            wake_or_join(reaction, job, because)
    if scope.joining:
        wake_joined(reaction, scope)


def begin_epoch(reaction: Reaction, failed_only: bool, by: str) -> None:
    """Reset the jobs for another epoch; with `failed_only` completed jobs stay completed."""
    state = reaction.state
    kept = COMPLETED if failed_only else None
    end = state.plan.end
    # Dead letters of an earlier epoch can still be redriven, however the next epoch ends.
    for scope in state.scopes.values():
        if scope.kept_for_redrive:
            reaction.order(keep_scope(state, scope))
    # A step that an arc had reached stays reached: the source of the arc may stay completed and not take it again.
    state.jobs = {
        job.id: job
        if job.status is kept and job.step != end
        else Job(job.id, ROOT, job.step, tokens=1 if failed_only and job.attempt else 0)
        for job in state.jobs.values()
        if job.scope == ROOT
    }
    # Job numbers are never reused: dead letters of an earlier epoch still refer to them.
    state.jobs_before = state.last_job
    state.items = 0
    state.fans = {
        number: fan
        for number, fan in state.fans.items()
        if number in state.jobs and (state.jobs[number].status is kept or fan.failed or fan.held)
    }
    for fan in state.fans.values():
        fan.queue, fan.active, fan.gated, fan.waiting, fan.redrive = [], {}, [], {}, False
    names = {state.step_of(job).name for job in state.jobs.values() if job.status is kept}
    state.closed_map_totals = {
        name: fan for name, fan in state.closed_map_totals.items() if name.partition("/")[0] in names
    }
    state.redrive = None
    state.scopes_to_drop = []
    state.active = state.parked = 0
    if not failed_only:
        state.scopes = {}
        state.memory = {}
    state.epoch += 1
    state.phase = "running"
    state.verdict = ""
    state.aborted = state.override = ""
    state.canceled = False
    state.started_at = reaction.at
    state.ended_at = state.first_failure = state.capacity = None
    state.in_flight = state.early = state.memory_bytes_used = 0
    state.cpus_used = 0.0
    state.queues = {}
    state.ahead_candidates = Queue()
    state.routes = []
    more = {"epoch": state.epoch, "failed_only": failed_only, "by": by}
    because = reaction.note_run("run_resumed", "running", state.seq, **more)
    open_root(reaction, because)
