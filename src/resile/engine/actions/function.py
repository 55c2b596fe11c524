"""Calls of Python functions: from a step to a launch, and from the worker's report to an outcome.

    Function + outputs of other steps --> Call         Returned --> Outcome with the value, or with the exception

The engine stores a result in the scope under its step's name, and so in the log and the database; None is not stored.
It reads the results of a fan-out's items from the log when a step uses them. A function that repairs another step
gets the failure of that step.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from resile.core.attempts import OVERRIDES
from resile.core.state import ROOT
from resile.engine.launch import Attempt, Variables
from resile.engine.resources import memory_limit, time_limit
from resile.executors import outcome as evidence
from resile.executors.contract import Launch, OutputReader, Returned, readable_output
from resile.executors.functions.calls import Call, Failed
from resile.languages.python.modules import NO_HOME, Home
from resile.languages.python.values import mentions_pickle
from resile.languages.surroundings import failed_job
from resile.model.failure import Failure, FailureKind, Kind, Outcome, Usage, contract_failure
from resile.model.limits import TAIL_BYTES
from resile.model.nested import steps_of, workflows_within
from resile.model.workflow import Function

if TYPE_CHECKING:
    from resile.core.state import Job, State
    from resile.engine.evaluation.values import Values
    from resile.model.workflow import Step, Workflow


def prepare(attempt: Attempt) -> Launch:
    """The launch of a function call, with the present values of its arguments; the worker already knows the run."""
    order, job, step, performer = attempt.order, attempt.job, attempt.step, attempt.performer
    action, state, values = step.action, performer.state, performer.values
    assert isinstance(action, Function)
    workflow = state.workflow if job.scope == ROOT else state.workflow_of(job.scope)
    env: Variables = ()
    if action.workers == "processes" and (step.env or workflow.env or order.gpus or failed_job(state, job)):
        env = performer.environment_of(order, job, step)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    if action.args:
        args = [_argument(given.kind, given.value, job, values) for given in action.args]
    if action.kwargs:
        kwargs = {name: _argument(given.kind, given.value, job, values) for name, given in action.kwargs.items()}
    call = Call(
        order.job,
        order.attempt,
        (place_of(action.file, workflow.folder), action.module, action.name),
        args,
        kwargs,
        time_limit(state, job) or 0.0,
        workflow.grace_seconds if step.grace_seconds is None else step.grace_seconds,
        bool(args or kwargs) and (mentions_pickle(args) or mentions_pickle(kwargs)),
        step.name,
        env,
        _failed_before(job, state) if job.callers or job.scope != ROOT else None,
        memory_bytes=memory_limit(state, job) if step.resources is not None else 0,
    )
    return Launch(order.job, order.attempt, (), call=call, threads=action.workers == "threads")


def _failed_before(job: Job, state: State) -> Failed | None:
    """The failure that this job has to repair; None for almost every job."""
    failed = failed_job(state, job)
    if failed is None or failed.error is None:
        return None
    error, failure = failed.error, failed.error.failure
    return Failed(error.step, failed.id, error.attempt, failure.kind, failure.exit_code, failure.message, failure.types)


def home_of(workflow: Workflow) -> Home:
    """The program that defines a workflow: pickles look for their `__main__` classes there.

    Only functions of the program itself have a file. A program started with `python -m` is a module, named like its
    file.
    """
    modules: set[str] = set()
    for flow in workflows_within(workflow):
        for action in (step.action for step in steps_of(flow)):
            if not isinstance(action, Function):
                continue
            if action.file:
                return place_of(action.file, flow.folder), ""
            modules.add(action.module)
    file = os.path.join(workflow.folder, os.path.basename(workflow.file))
    for module in sorted(modules):
        if file.removesuffix(".py").endswith("/" + module.replace(".", "/")):
            return "", module
    return (file, "") if file.endswith(".py") and os.path.isfile(file) else NO_HOME


@cache
def place_of(file: str, folder: str) -> str:
    """The path of a function's file, relative to the folder of its workflow; `<stdin>` and the like are no files."""
    return os.path.normpath(os.path.join(folder, file)) if file and not file.startswith("<") else file


def _argument(kind: str, value: Any, job: Job, values: Values) -> Any:
    """One argument as JSON data; a failed step that was tolerated gives None."""
    match kind:
        case "step":
            return values.find(("steps", value, "output"), job)
        case "item":
            return values.find(("item",), job)
        case "execution":
            return values.find(("execution",), job)
        case "input":
            return values.find(("inputs", value), job)
        case "list":
            return [_argument(inner[0], inner[1], job, values) for inner in value]
        case "mapping":
            return {name: _argument(inner[0], inner[1], job, values) for name, inner in value.items()}
    return value


def outcome_of(report: Returned, state: State, job: Job | None, step: Step | None, output: OutputReader) -> Outcome:
    """The outcome of a call; the value that `end` returns may set the verdict of the run."""
    usage = Usage(max(0.0, report.at - report.started_at), report.cpu_seconds, report.rss_bytes_max)
    log = report.log if report.log.segment else None
    if report.kind:
        return Outcome(report.exit_code or 1, _failure(report, output), usage, log)
    if job is None or step is None:
        return Outcome(0, None, usage, log)
    name = step.name
    if not report.value and name not in state.frame_of(job.scope).values:
        return Outcome(0, None, usage, log)
    value = msgspec.json.decode(report.value) if report.value else None
    verdict = value.get("workflow_status") if isinstance(value, dict) and state.is_end(job) else None
    if verdict is None:
        return Outcome(0, None, usage, log, {name: value})
    if verdict not in OVERRIDES:
        message = f"workflow_status is {str(verdict)[:60]!r}, not completed or failed"
        return Outcome(0, contract_failure(message, "verdict", 0), usage, log, {name: value})
    return Outcome(0, None, usage, log, {name: value, "workflow_status": verdict})


def _failure(report: Returned, output: OutputReader) -> Failure:
    """The exception that a function raised, as a failure with the evidence that rules match."""
    kind: FailureKind = Kind.CONTRACT if report.kind == Kind.CONTRACT else Kind.EXIT
    log = report.log if report.log.segment else None
    stdout = evidence.decode_text(readable_output(output, log, "out", -TAIL_BYTES))
    stderr = evidence.decode_text(readable_output(output, log, "err", -TAIL_BYTES)) or report.traceback[-TAIL_BYTES:]
    code = report.exit_code or None
    mark = evidence.signature_of(kind, code, report.message)
    return Failure(kind, report.message, code, None, stdout, stderr, mark, report.types)
