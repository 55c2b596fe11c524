"""The beginning of a run and of each later epoch: which jobs are open, and what waits for nothing."""

from __future__ import annotations

from resile.core.actions import Action
from resile.core.event_log import note_run
from resile.core.scheduling.dependencies import arrive, join
from resile.core.scheduling.scopes import keep_scope
from resile.core.state import ROOT, TIMES, Job, Queue, Scope, State
from resile.model.status import Status


def open_root(state: State, out: list[Action], because: int) -> None:
    """Count what is open in the root scope and wake what waits for nothing.

    Jobs that are already terminal (kept from an earlier epoch) count as done and satisfy what needs them.
    """
    plan = state.plan
    scope = Scope(ROOT, "root", 1, list(plan.waiting), times=bytearray(TIMES.size * len(plan.steps)))
    kept = state.scopes.get(ROOT)
    if kept is not None:
        scope.values = kept.values
    state.scopes = {ROOT: scope}
    for number, step in enumerate(plan.steps[: plan.end]):
        job = state.jobs[number + 1]
        if step.called_only:
            job.status = Status.disabled
        elif job.status is Status.completed:
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
        if job.status is Status.blocked and not scope.waiting[number] and reached:
            arrive(state, out, job, because)
    if scope.joining:
        join(state, out, scope)


def begin_epoch(state: State, out: list[Action], at: float, failed_only: bool, by: str) -> None:
    """Reset the jobs for another go; with `failed_only` those that completed stay as they are."""
    kept = Status.completed if failed_only else None
    end = state.plan.end
    # Letters of an earlier epoch may still be tried again, whatever the next one comes to.
    out += [keep_scope(state, scope) for scope in state.scopes.values() if scope.kept_for_redrive]
    # A step that an arc had reached stays reached: the arc's source may be kept and will not take it again.
    state.jobs = {
        job.id: job
        if job.status is kept and job.step != end
        else Job(job.id, ROOT, job.step, tokens=1 if failed_only and job.attempt else 0)
        for job in state.jobs.values()
        if job.scope == ROOT
    }
    # Numbers are never given twice: what is kept of an earlier epoch is still called by them.
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
    state.started_at = at
    state.ended_at = state.first_failure = state.capacity = None
    state.in_flight = state.early = state.memory_bytes_used = 0
    state.cpus_used = 0.0
    state.queues = {}
    state.ahead_candidates = Queue()
    state.routes = []
    because = note_run(
        state, out, at, "run_resumed", "running", state.seq, epoch=state.epoch, failed_only=failed_only, by=by
    )
    open_root(state, out, because)
