"""Carries out the plan of a round: first the hook, then the jobs run again, until the run ends or parks."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

from msgspec.structs import replace

from resile.commands.recovery.planning import RoundPlan
from resile.commands.run import EngineListener, RunOutcome, drive_engine, outcome_of
from resile.commands.start.call import ResourceLimits
from resile.commands.start.notices import notices_of
from resile.commands.start.prepare import capacity_for
from resile.core.events import Event
from resile.engine.clock import clock_of
from resile.engine.replay import fold_log, row_of
from resile.engine.session import hold_lease, next_event
from resile.errors import ResileError
from resile.executors.local.prestart import Prestarted
from resile.store.server_tables import SharedStore


def carry_out(
    store: SharedStore,
    plan: RoundPlan,
    limits: ResourceLimits,
    listener: EngineListener,
    launcher: Prestarted | None = None,
) -> RunOutcome:
    """Let the jobs of a plan run again, and drive the run on; refuse a plan that is out of date.

    The function reads the log while it holds the lease, because otherwise another engine could still write.
    """
    row = row_of(store, plan.run)
    with hold_lease(store, row.id) as lease:
        state = fold_log(store, row)
        if state.seq != plan.seq:
            message = f"run {plan.run} has changed since the plan was made"
            raise ResileError("plan-out-of-date", message, hint=f"`resile recover {plan.run}` makes a new one")
        capacity = capacity_for(state.workflow, limits)
        clock = clock_of(state)
        events: list[Event] = [replace(event, at=clock.now()) for event in plan.events]
        events.append(next_event(row, state, capacity, clock))
        notices = notices_of(store, row, state)
        status = drive_engine(store, row, state, lease, events, capacity, listener, launcher, clock, notices)
    return outcome_of(store, row, state, status)


def run_hook(command: str, run: int) -> str:
    """Run the hook of a recovery with the run's id as an argument; return why it failed, or an empty text.

    The hook's output goes to our stderr, because stdout is for the answer.
    """
    words = [*shlex.split(command), str(run)]
    env = {**os.environ, "RESILE_WORKFLOW_ID": str(run), "TORC_WORKFLOW_ID": str(run)}
    try:
        code = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode
    except OSError as error:
        return f"the recovery hook can't be started: {words[0]}: {error.strerror}"
    if not code:
        return ""
    ended = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
    return f"the recovery hook {ended}"
