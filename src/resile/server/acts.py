"""Carries out callers' acts on runs: each act is in the store before the server answers it and rings the host.

no engine drives the run   the act is recorded here, under the run's lease, and the run is handed to the servers
an engine drives it        a request is left for it; where the caller needs the engine's answer, wait for it
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from resile.commands.judge import Judgement
from resile.commands.judge import answer as answer_question
from resile.commands.judge import judge as judge_failure
from resile.commands.run import refuse_unfinished
from resile.commands.start.call import Given, ResourceLimits
from resile.commands.start.prepare import inputs_for
from resile.engine.replay import fold_log, row_of
from resile.engine.resources import UNLIMITED, refuse_misfits
from resile.model.status import RUN_ENDED, status_clause
from resile.server.problems import Problem
from resile.store.lease import boot_seconds

if TYPE_CHECKING:
    from resile.commands.documents.answers import JudgementResult
    from resile.server.declarations import Request
    from resile.server.stores import Connection
    from resile.store.server_tables import SharedStore

ANSWER_SECONDS_MAX = 10.0
LOOK_SECONDS = 0.2


async def judge(request: Request, run: int, job: str, judgement: Judgement) -> JudgementResult:
    """Judge a parked failure, and let the run go on."""
    by = request.identity.name
    return await _decide(request, run, lambda store: judge_failure(store, run, job, judgement, by))


async def answer(request: Request, run: int, step: str, text: str) -> JudgementResult:
    """Answer the question of a step, and let the run go on."""
    by = request.identity.name
    return await _decide(request, run, lambda store: answer_question(store, run, step, text, by))


async def _decide(request: Request, run: int, decide: Callable[[SharedStore], JudgementResult]) -> JudgementResult:
    """Decide on a parked failure, and let the run go on."""

    def act(connection: Connection) -> JudgementResult:
        """Write the judgement to the log, then hand the run to the servers unless an engine has it."""
        found = decide(connection.store)
        if not found.driven:
            connection.tables.enqueue(run, time.time())
        return found

    found = await request.server.stores.write(act)
    request.server.host.ring()
    return found


async def cancel(request: Request, run: int, reason: str) -> None:
    """Ask for the end of a run."""
    body = {"by": request.identity.name, "reason": reason}

    def act(connection: Connection) -> None:
        """Leave the request for the engine that drives the run, or for the next one."""
        if _left_before(connection, request, run) is None:
            _refuse_ended(connection, run)
            connection.store.request(run, time.time(), "cancel", _with_call(request, body))
        connection.tables.enqueue(run, time.time())

    await request.server.stores.write(act)
    request.server.host.ring()


async def resume(request: Request, run: int, limits: ResourceLimits) -> None:
    """Hand a run that no engine drives to the servers; from now on `limits` are its capacity."""

    def act(connection: Connection) -> None:
        """Hand the run over, with a request that names the caller."""
        if _left_before(connection, request, run) is None:
            _refuse_ended(connection, run)
            _refuse_driven(connection, run)
            body = {"by": request.identity.name, "limits": _limits_for(connection, run, limits)}
            connection.store.request(run, time.time(), "resume", _with_call(request, body))
        connection.tables.enqueue(run, time.time())

    await request.server.stores.write(act)
    request.server.host.ring()


async def rerun(
    request: Request, run: int, failed_only: bool, inputs: dict[str, Any] | None, limits: ResourceLimits
) -> None:
    """Begin the next epoch of a run that has ended; `inputs` replace the run's inputs of the same names."""
    body: dict[str, Any] = {"failed_only": failed_only}

    def check(connection: Connection) -> None:
        """Refuse a run that has not ended, and inputs that it does not have."""
        if _left_before(connection, request, run) is not None:
            return
        row = row_of(connection.store, run)
        refuse_unfinished(row, "rerun")
        if row.status not in RUN_ENDED:
            raise Problem("run_active", f"run {run} has not ended", hint="cancel it, or wait until it has ended")
        if inputs:
            body["inputs"] = inputs_for(fold_log(connection.store, row), Given(objects=inputs))
        body["limits"] = _limits_for(connection, run, limits)

    await request.server.stores.read(check)
    await ask(request, run, "rerun", body)


def _with_call(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    """The body of a request to an engine, with the name of the call, so that a repeated call finds the request."""
    return {**body, "call": request.call} if request.call else body


def _left_before(connection: Connection, request: Request, run: int) -> int | None:
    """The request that an earlier try of this call left, if the server of that try died before it could answer."""
    return connection.tables.request_of_call(run, request.call) if request.is_repeated else None


async def was_left(request: Request, run: int) -> bool:
    """Did an earlier try of this call leave a request to the engine?"""
    found = await request.server.stores.read(lambda connection: _left_before(connection, request, run))
    return found is not None


def _limits_for(connection: Connection, run: int, limits: ResourceLimits) -> dict[str, float]:
    """The fields of a capacity that a caller limits; refused if a step of the run needs more."""
    named = {
        "parallel": limits.max_parallel,
        "cpus": limits.cpus,
        "memory_bytes": limits.memory_bytes,
        "gpus": limits.gpus,
    }
    given = {name: value for name, value in named.items() if value is not None}
    if given:
        state = fold_log(connection.store, row_of(connection.store, run))
        refuse_misfits(state.workflow, replace(UNLIMITED, **given))
    return given


def _refuse_ended(connection: Connection, run: int) -> None:
    row = row_of(connection.store, run)
    if row.status in RUN_ENDED:
        raise Problem("run_ended", f"run {run} has ended: it {status_clause(row.status)}")


def _refuse_driven(connection: Connection, run: int) -> None:
    if connection.store.lease(run, boot_seconds()) is not None:
        hint = f"wait for it, watch it with `resile status {run}`, or stop it with `resile cancel {run}`"
        raise Problem("run_active", f"run {run} is being driven", hint=hint, command_code="lease-held")


async def ask(request: Request, run: int, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """Leave a request for the engine of a run, and wait for the answer; raises a Problem if the engine refuses."""

    def leave(connection: Connection) -> int:
        """Leave the request, and make the run due, so that an engine answers."""
        number = _left_before(connection, request, run)
        if number is not None and connection.store.result(number) is not None:
            return number
        if number is None:
            named = _with_call(request, {**body, "by": request.identity.name})
            number = connection.store.request(run, time.time(), kind, named)
        # Do this last: a host that finds the run due before the request exists would release the run again.
        connection.tables.enqueue(run, time.time())
        return number

    server = request.server
    number = await server.stores.write(leave)
    server.host.ring()
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while time.monotonic() < deadline:
        version = server.watcher.version
        result = await server.stores.read(lambda connection: connection.store.result(number))
        if result is not None:
            return _result_of(result)
        await server.watcher.wait_beyond(version, LOOK_SECONDS)
    hint = "its events will show whether it has been done"
    raise Problem("no_answer", f"the engine of run {run} has been asked and has not answered", hint=hint)


def _result_of(result: dict[str, Any]) -> dict[str, Any]:
    """The engine's answer; raises a Problem if the engine refused."""
    error = result.get("error")
    if error is None:
        return result
    code = str(error.get("code", "")).replace("-", "_")
    raise Problem(code, str(error.get("message", "")), hint=str(error.get("hint", "")))
