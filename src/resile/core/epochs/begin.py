"""Begins a run and each later epoch: counts the open jobs and wakes those without open needs.

A rerun of what failed keeps what completed, at any depth: a fan-out runs its items that did not succeed, and a child
workflow or an item goes on in its stored scope (`take_up_scope`) where it failed. A recovery keeps the failures as well
that it does not answer (recovery.py). A rerun of what changed keeps whole steps of the run itself (redefine.py), and a
run may begin with steps of an earlier run.
"""

from __future__ import annotations

from typing import Any

from resile.core.epochs.fresh_jobs import grant_again, start_over, take_grant
from resile.core.events import Cached, EpochStarted
from resile.core.fanout.naming import part_name
from resile.core.reaction import Reaction
from resile.core.scheduling.scopes import add_scope, add_to_totals, keep_scope, read_kept, start_scope
from resile.core.state import ROOT, TIMES, Job, Queue, Scope, State
from resile.core.transitions import set_status
from resile.model.status import COMPLETED, DISABLED, TERMINAL


def open_root(reaction: Reaction, because: int, cached: Cached | None = None) -> None:
    """Count the open jobs of the root scope and wake those without open needs; `cached` is what a run takes over."""
    start_scope(reaction, _fresh_root(reaction, because, cached), because)


def _fresh_root(reaction: Reaction, because: int, cached: Cached | None = None) -> Scope:
    """The root scope of the epoch that begins, with its open jobs counted."""
    state = reaction.state
    before = state.scopes.get(ROOT)
    scope = Scope(ROOT, "root", min(state.jobs), [])
    if before is not None:
        scope.values, scope.outputs, scope.arc_arguments = before.values, before.outputs, before.arc_arguments
    state.scopes = {ROOT: scope}
    if cached is not None:
        from resile.core.epochs.redefine import take_over

        take_over(reaction, scope, cached, because)
    _count_open(state, scope, before)
    return scope


def _count_open(state: State, scope: Scope, before: Scope | None) -> None:
    """Count the open jobs of a scope; jobs that an earlier epoch completed count as done for their dependents."""
    plan = state.plan_of(scope.id)
    scope.waiting = list(plan.waiting)
    scope.times = bytearray(TIMES.size * len(plan.steps))
    for number, step in enumerate(plan.steps):
        if number == plan.end:
            continue
        job = state.jobs[scope.first + number]
        if step.called_only:
            set_status(job, DISABLED)
        elif job.status in TERMINAL:
            if before is not None:
                place = slice(TIMES.size * number, TIMES.size * (number + 1))
                scope.times[place] = before.times[place]
            for dependent in plan.dependents[number] if job.status is COMPLETED else ():
                scope.waiting[dependent] -= 1
        else:
            scope.open += 1


def take_up_scope(state: State, body: dict[str, Any]) -> Scope:
    """Take up the stored scope of an item or a child workflow that failed in an earlier epoch.

    What completed in it stays, with its values; everything else is as before its first attempt. The caller starts it.
    """
    kept = read_kept(body)
    before = kept.scope
    scope = Scope(
        before.id,
        before.name,
        before.first,
        [],
        kind=before.kind,
        owner=before.owner,
        rule=before.rule,
        depth=before.depth,
        item=before.item,
        inputs=before.inputs,
        values=before.values,
        outputs=before.outputs,
        arc_arguments=before.arc_arguments,
    )
    add_scope(state, scope)
    plan = state.plan_of(scope.id)
    for job in kept.jobs:
        stays = job.status is COMPLETED and job.step != plan.end
        state.jobs[job.id] = job if stays else start_over(job, kept.fans.get(job.id), True)
        if state.grants and not stays:
            take_grant(state, scope, state.jobs[job.id], plan.steps[job.step].name)
    _count_open(state, scope, before)
    for number, fan in kept.fans.items():
        fan.epoch = state.epoch
        state.fans[number] = fan
    # The scope's fan-outs are counted again when it closes.
    add_to_totals(state, scope, -1)
    return scope


def begin_epoch(reaction: Reaction, event: EpochStarted) -> None:
    """Reset the jobs for another epoch; with `failed_only`, or steps to run `again`, completed jobs stay completed.

    A recovery, which has `remedies`, keeps the failures as well that none of them answers.
    """
    state, remedies = reaction.state, event.remedies
    # Dead letters of an earlier epoch can still be redriven, however the next epoch ends.
    for scope in state.scopes.values():
        if scope.kept_for_redrive:
            reaction.order(keep_scope(state, scope))
    before, more = state.jobs, _epoch_data(event, state.epoch + 1)
    if remedies is not None:
        from resile.core.epochs.recovery import grant, jobs_of_recovery, remedy_data

        grant(state, remedies)
        state.jobs = jobs_of_recovery(state, remedies)
        more["remedies"] = remedy_data(remedies)
    elif event.again is not None:
        from resile.core.epochs.redefine import redefine

        redefine(state, event)
        grant_again(state, state.jobs)
    else:
        state.jobs = _jobs_of_rerun(state, event.failed_only)
    # Also the rows of jobs that wait for others: nothing else changes them before these others have ended.
    state.touched += [number for number, job in state.jobs.items() if job is not before.get(number)]
    is_kept = {number: job.status in TERMINAL or job is before.get(number) for number, job in state.jobs.items()}
    _keep_fans(state, {number for number, kept in is_kept.items() if kept})
    _reset_counters(reaction, keeps=event.failed_only or event.again is not None)
    because = reaction.note_run("run_resumed", "running", state.seq, **more)
    if state.workflow.cluster is not None:
        from resile.core.scheduling.blocks import begin_blocks

        begin_blocks(reaction, because)
    if remedies is None:
        open_root(reaction, because)
    else:
        from resile.core.epochs.recovery import open_again

        open_again(reaction, _fresh_root(reaction, because), remedies, because)


def _epoch_data(event: EpochStarted, epoch: int) -> dict[str, Any]:
    """What the log says of an epoch: who began it, and which steps it repeats, if they were chosen."""
    data: dict[str, Any] = {"epoch": epoch, "failed_only": event.failed_only, "by": event.by, "actor": event.by}
    if event.again is not None:
        data["again"] = list(event.again)
    if event.learned:
        data["learned_memory_bytes"] = event.learned
    return data


def _jobs_of_rerun(state: State, failed_only: bool) -> dict[int, Job]:
    """The jobs of the root scope for a rerun."""
    kept = COMPLETED if failed_only else None
    if not failed_only:
        state.grants = {}
    jobs = {
        job.id: job
        if job.status is kept and job.step != state.plan.end
        else start_over(job, state.fans.get(job.id), failed_only)
        for job in state.jobs.values()
        if job.scope == ROOT
    }
    if state.grants:
        grant_again(state, jobs)
    return jobs


def _keep_fans(state: State, staying: set[int]) -> None:
    """Keep the fan-outs of jobs that stay as they are, of those with letters, and of those that go on."""
    # Job numbers are never reused: dead letters of an earlier epoch still refer to them.
    state.jobs_before = state.last_job
    state.items = 0
    state.fans = {
        number: fan
        for number, fan in state.fans.items()
        if number in state.jobs and (number in staying or fan.failed or fan.held or state.jobs[number].again)
    }
    for number, fan in state.fans.items():
        fan.queue, fan.active, fan.gated, fan.waiting, fan.redrive, fan.kept = [], {}, [], {}, False, {}
        if state.jobs[number].again or (number in staying and state.jobs[number].status is not COMPLETED):
            fan.epoch = state.epoch + 1
    if state.closed_map_totals:
        names = [state.step_of(job).name for job in state.jobs.values() if job.id in staying or job.again]
        inside = tuple(f"{part_name(state, name)}/" for name in names)
        state.closed_map_totals = {
            name: fan for name, fan in state.closed_map_totals.items() if name.startswith(inside)
        }


def _reset_counters(reaction: Reaction, *, keeps: bool) -> None:
    """Begin everything anew that is counted in one epoch, and without `keeps` also values and memory."""
    state = reaction.state
    state.redrive = None
    state.scopes_to_drop = []
    state.active = state.parked = 0
    if not keeps:
        state.scopes = {}
        state.memory = {}
    state.epoch += 1
    state.phase = "running"
    state.verdict = ""
    state.aborted = state.override = ""
    state.canceled = state.end_canceled = False
    state.started_at = reaction.at
    state.ended_at = state.first_failure = state.capacity = None
    state.in_flight = state.early = state.memory_bytes_used = 0
    state.cpus_used = 0.0
    state.queues = {}
    state.ahead_candidates = Queue()
    state.routes = []
