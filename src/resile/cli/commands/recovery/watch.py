"""`watch`: wait for a run, and with --recover help it through its failures."""

from __future__ import annotations

import time
from contextlib import closing

from resile.cli.commands.recovery.recover import Recovery, options_of
from resile.cli.commands.run import drive
from resile.cli.display import output
from resile.cli.parse import Call, refusal
from resile.commands.inspect import standing
from resile.commands.start.call import ResourceLimits
from resile.commands.store_handle import StoreHandle
from resile.engine.replay import row_of
from resile.model.status import EXIT_CODES, RunStatus, status_clause

INTERVAL_SECONDS = 10.0
_WITH_RECOVER = (
    *("memory-multiplier", "runtime-multiplier", "memory-max", "runtime-max", "retry-unknown", "park-unknown"),
    *("recovery-hook", "max-rounds"),
)


def watch(call: Call) -> int:
    """Wait until a run has ended, is parked or has lost its engine; then recover it, if that is wanted."""
    recovers = call.flag("recover")
    for key in _WITH_RECOVER:
        if call.flag(key) and not recovers:
            raise refusal(f"--{key} goes with --recover", "resile watch RUN --recover")
    interval = call.duration("interval") or INTERVAL_SECONDS
    options = options_of(call)
    status = _wait(call, interval)
    if not recovers:
        return _tell(call, status)
    if status == "interrupted":
        output.say(f"run {call.run} has no engine; it is resumed")
        limits = ResourceLimits(max_parallel=call.whole("max-parallel"))
        finished = drive(call, lambda listener: call.client.resume(call.run, limits, listener))
        # The engine of a recovery opens a writer of its own.
        call.close()
        if finished is None or finished.status == "interrupted":
            return EXIT_CODES["interrupted"]
    return Recovery(call, options).go_through()


def _wait(call: Call, interval: float) -> RunStatus:
    """Wait until the run does not move any more; return its status."""
    with closing(StoreHandle(call.database)) as stores:
        store = stores.read()
        while (status := standing(store, row_of(store, call.run))) == "running":
            time.sleep(interval)
    return status


def _tell(call: Call, status: RunStatus) -> int:
    """Print how the run stands."""
    if call.json:
        output.print_document(call.client.status(call.run))
    else:
        hint = f"`{output.command_hint(f'recover {call.run}', output.place_of(call))}` plans what could help"
        output.write_text(
            f"run {call.run} {status_clause(status)}{f'; {hint}' if status in ('failed', 'parked') else ''}\n"
        )
    return EXIT_CODES[status]
