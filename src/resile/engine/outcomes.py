"""Turns an executor's reports into events for the core and rows for the store."""

from __future__ import annotations

import os
from collections.abc import Callable
from errno import EDQUOT, ENOSPC
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from resile.core.attempts import OVERRIDES
from resile.core.events import AttemptAdopted, AttemptEnded, AttemptStarted, AttemptWithdrawn, Event
from resile.core.growth import cut_known
from resile.core.recovery.matching import ladder_of
from resile.core.state import ROOT, Job, State
from resile.engine.capture import (
    ALWAYS_THERE,
    CaptureRefused,
    capture_file,
    capture_output,
    capture_value,
    excess_spending,
    missing_outputs,
    parse_result,
    reported_error,
    verdict_of,
)
from resile.engine.clock import Clock
from resile.engine.evaluation.values import Values
from resile.engine.launch import Performer
from resile.engine.resources import memory_limit, time_limit
from resile.engine.secrets import Hidden, redact, redact_failure, redact_outcome, redact_value
from resile.executors import outcome as evidence
from resile.executors.contract import (
    Adopted,
    Ended,
    Lost,
    OutputLost,
    OutputReader,
    Report,
    Returned,
    Started,
    Withdrawn,
)
from resile.languages.contract import render_text
from resile.languages.references import MISSING, ValueRefused
from resile.model.failure import Kind, Outcome, contract_failure, output_lost
from resile.model.status import Status
from resile.model.workflow import Agent, Capture, Child, FanOut, Step, Validate
from resile.store.contract import AttemptRow

if TYPE_CHECKING:
    from resile.engine.evaluation.evaluators import Evaluators


class Observer:
    """Reads the reports of one run."""

    def __init__(
        self,
        state: State,
        performer: Performer,
        values: Values,
        evaluators: Evaluators,
        *,
        output: OutputReader,
        clock: Clock,
        folder: str,
        secrets: Hidden,
    ) -> None:
        self._evaluators = evaluators
        self._state = state
        self._performer = performer
        self._values = values
        self._output = output
        self._clock = clock
        self._folder = folder
        self._secrets = secrets
        self._started: dict[tuple[int, int], AttemptRow] = {}
        self._outcome_of: Callable[..., Outcome] | None = None

    def observe(self, report: Report, *, interrupted: bool) -> tuple[Event, AttemptRow | None]:
        """The event of a report, and the attempt's row if the report changes it."""
        match report:
            # Ended and Returned first: they are the most frequent, and a failed class pattern is slow.
            case Returned():
                outcome = self._apply_cases(report.job, self._outcome_of_call(report))
                return self.end_attempt(report.job, report.attempt, report.at, outcome, pid=report.pid)
            case Ended():
                if has_no_room(report) or (interrupted and report.reason == "killed"):
                    self._started.pop((report.job, report.attempt), None)
                    self._performer.remove_files(report.job, report.attempt)
                    started = not has_no_room(report)
                    return AttemptWithdrawn(report.at, report.job, report.attempt, started=started), None
                outcome = self._outcome_of_end(report)
                canceled = report.reason == "killed"
                if not canceled:
                    outcome = self._apply_cases(report.job, outcome)
                return self.end_attempt(report.job, report.attempt, report.at, outcome, canceled, report.pid)
            case Started():
                event = AttemptStarted(report.at, report.job, report.attempt, report.pid)
                return event, self._row_of_start(report)
            case Adopted():
                # The event has the time of the adoption. The row may be new: the start may not have been reported.
                at = self._clock.now()
                adopted = AttemptAdopted(at, report.job, report.attempt, report.pid, report.at)
                return adopted, self._row_of_start(report)
            case Withdrawn():
                self._performer.remove_files(report.job, report.attempt)
                started, why = report.started, report.why
                return AttemptWithdrawn(report.at, report.job, report.attempt, started=started, why=why), None
            case Lost():
                return self.end_attempt(report.job, report.attempt, report.at, evidence.outcome_of_lost(report))
        assert_never(report)

    def _row_of_start(self, report: Started | Adopted) -> AttemptRow:
        """The row of an attempt that runs."""
        row = AttemptRow(report.job, self._state.epoch, report.attempt, report.at, log=report.log, pid=report.pid)
        self._started[report.job, report.attempt] = row
        return row

    def end_attempt(
        self, job: int, attempt: int, at: float, outcome: Outcome, canceled: bool = False, pid: int = 0
    ) -> tuple[Event, AttemptRow]:
        """The event of an attempt's end and its finished row, both without secrets."""
        if self._performer.files:
            self._performer.remove_files(job, attempt)
        # First, because others may change the state while files are read.
        fingerprint = self._performer.fingerprint_of(job, attempt, succeeded=outcome.failure is None and not canceled)
        found = self._state.jobs.get(job)
        # No handler runs in the root scope.
        if found is not None and found.scope != ROOT and outcome.failure is None and not canceled:
            outcome = self._capture_for_owners(found, outcome, at)
        if self._secrets:
            outcome = redact_outcome(outcome, self._secrets)
        if found is not None and any(effect.kind == "again" for effect in self._state.step_of(found).effects):
            outcome = self._without_known_pages(found, outcome)
        known = self._started.pop((job, attempt), None)
        row = AttemptRow(
            job,
            self._state.epoch,
            attempt,
            at - outcome.usage.wall_seconds if known is None else known.started_at,
            at,
            outcome.exit_code,
            outcome.usage,
            outcome.log,
            outcome.failure,
            pid if known is None else known.pid,
        )
        return AttemptEnded(at, job, attempt, outcome, canceled, pid, fingerprint), row

    def _without_known_pages(self, job: Job, outcome: Outcome) -> Outcome:
        """The outcome of a step that collects pages, without those that earlier attempts collected."""
        values, more = cut_known(self._state.frame_of(job.scope).values, outcome.values)
        memory, grown = cut_known(self._state.memory, outcome.memory)
        return msgspec.structs.replace(
            outcome, values=values, memory=memory, values_grown=tuple(more), memory_grown=tuple(grown)
        )

    def _outcome_of_end(self, report: Ended) -> Outcome:
        """The outcome of a command.

        Its output may be lost, because the disk was full or the power failed. The exit code counts all the same, so
        that the command need not run again.
        """
        lost = report.spawn_stage == "output" and bool(report.log.segment)
        if lost:
            report = msgspec.structs.replace(report, spawn_error=0, spawn_stage="")
        limits = self._limits_of(report) if report.reason else evidence.NO_LIMITS
        outcome = evidence.outcome_of(report, self._output, limits, self._directory_of(report))
        if not lost:
            try:
                return self._complete(report, outcome)
            except ValueRefused as problem:
                return _fail_contract(outcome, problem.message, "value refused")
            except OutputLost:
                pass
        outcome = msgspec.structs.replace(outcome, output_lost=True)
        job = self._state.jobs.get(report.job)
        if job is None or outcome.failure is not None:
            return outcome
        step = self._state.step_of(job)
        if isinstance(step.action, FanOut):
            return _fail_contract(outcome, output_lost(step.name), "output lost")
        try:
            return self._check_outputs(report, job, step, outcome)
        except ValueRefused as problem:
            return _fail_contract(outcome, problem.message, "value refused")
        except OutputLost:
            return outcome

    def _capture_for_owners(self, job: Job, outcome: Outcome, at: float) -> Outcome:
        """Add the values that the owners of a fallback capture from the output of its last command.

        If an owner can't capture the output, the command fails, and so does the fallback.
        """
        if not self._in_handler(job) or isinstance(self._state.step_of(job).action, FanOut | Child):
            return outcome
        # A step that runs inside the engine prints nothing: the owner captures its value.
        gave = next(iter(outcome.values.values()), MISSING) if outcome.log is None else MISSING
        other = _fallback_owner_of(self._state, job)
        while other is not None:
            step = self._state.step_of(other)
            try:
                captures = _captures_of(step)
                if gave is not MISSING:
                    values = capture_value(gave, captures, outcome.exit_code)
                else:
                    values = self._capture(other, step, captures, outcome)
            except CaptureRefused as problem:
                message = f"the fallback of {step.name!r}: {problem}"
                return _fail_contract(outcome, redact(message, self._secrets), "capture")
            except OutputLost:
                return _fail_contract(outcome, output_lost(self._state.step_of(job).name), "output lost")
            if step.transform is not None:
                made = self._evaluators.complete(other, step, outcome, values[captures[0].name], at)
                if made.failure is not None:
                    return made
                values = made.values
            outcome = msgspec.structs.replace(outcome, values={**outcome.values, **values})
            other = _fallback_owner_of(self._state, other)
        return outcome

    def _outcome_of_call(self, report: Returned) -> Outcome:
        """The outcome of a function call."""
        if self._outcome_of is None:
            from resile.engine.actions.function import outcome_of

            self._outcome_of = outcome_of
        job = self._state.jobs.get(report.job)
        step = None if job is None else self._state.step_of(job)
        return self._outcome_of(report, self._state, job, step, self._output)

    def _limits_of(self, report: Ended) -> evidence.Limits:
        """The limits of an attempt that the executor ended, for its failure."""
        job, state = self._state.jobs.get(report.job), self._state
        if job is None:
            return evidence.NO_LIMITS
        return evidence.Limits(time_limit(state, job) or 0.0, memory_limit(state, job))

    def _directory_of(self, report: Ended) -> str:
        job = self._state.jobs.get(report.job) if report.spawn_stage == "cwd" else None
        return "" if job is None else self._performer.directory_of(job, self._state.step_of(job))

    def _apply_cases(self, number: int, outcome: Outcome) -> Outcome:
        """Let the step's cases change the outcome."""
        job = self._state.jobs.get(number)
        if job is None:
            return outcome
        step = self._state.step_of(job)
        if not (step.cases or step.effects):
            return outcome
        try:
            return self._evaluators.step_events.conclude(job, step, outcome)
        except ValueRefused as problem:
            return _fail_contract(outcome, problem.message, "value refused")

    def _complete(self, report: Ended, outcome: Outcome) -> Outcome:
        """Add the results that the step promised to the outcome: captures, output files, a commit, `end`'s verdict."""
        job = self._state.jobs.get(report.job)
        if job is None:
            return outcome
        step = self._state.step_of(job)
        if outcome.failure is not None:
            return self._complete_failure(job, step, outcome)
        if type(step.action) is FanOut:
            return self._count_items(report, outcome)
        if step.transform is not None:
            return self._transform_output(job, step, outcome, report.at)
        if not (step.capture or step.outputs or step.commit_required or self._state.is_end(job)):
            return self._check_spending(step, outcome)
        assert outcome.log is not None
        values: dict[str, Any] = {}
        try:
            values = self._capture(job, step, step.capture, outcome)
        except CaptureRefused as problem:
            return _fail_contract(outcome, redact(str(problem), self._secrets), "capture")
        if self._state.is_end(job) and (verdict := verdict_of(self._output, outcome.log, values)):
            if verdict not in OVERRIDES:
                return _fail_contract(
                    outcome, f"workflow_status is {verdict[:60]!r}, not completed or failed", "verdict"
                )
            values = {**values, "workflow_status": verdict}
        outcome = msgspec.structs.replace(outcome, values=values)
        try:
            return self._check_outputs(report, job, step, outcome)
        except ValueRefused as problem:
            return _fail_contract(outcome, problem.message, "value refused")

    def end_inside(self, job: int, attempt: int, at: float, outcome: Outcome) -> tuple[Event, AttemptRow]:
        """End an attempt that ran inside the engine: it keeps the promises of its step as a program does."""
        found = self._state.jobs.get(job)
        step = None if found is None else self._state.step_of(found)
        if found is not None and step is not None and step.outputs and outcome.failure is None:
            try:
                outcome = self._check_files(found, step, outcome)
            except ValueRefused as problem:
                outcome = _fail_contract(outcome, problem.message, "value refused")
        return self.end_attempt(job, attempt, at, outcome)

    def _check_files(self, job: Job, step: Step, outcome: Outcome) -> Outcome:
        """Fail an outcome if its step left out a promised file; raises ValueRefused."""
        visible = self._values.of(job)
        files = [render_text(name, visible) for name in step.outputs]
        missing = missing_outputs(self._performer.directory_of(job, step), files)
        return _fail_contract(outcome, missing, "output file missing") if missing else outcome

    def _check_outputs(self, report: Ended, job: Job, step: Step, outcome: Outcome) -> Outcome:
        """Fail an outcome if its step left out a promised file or commit; raises ValueRefused."""
        outcome = self._check_files(job, step, outcome)
        if outcome.failure is not None:
            return outcome
        directory = self._performer.directory_of(job, step)
        if step.commit_required and self._performer.is_head_unchanged(report.job, report.attempt, directory):
            return _fail_contract(outcome, "commit_required: the step made no commit", "no commit")
        return self._check_spending(step, outcome)

    def _transform_output(self, job: Job, step: Step, outcome: Outcome, at: float) -> Outcome:
        """Transform the output of a step into its value and run the step's checks."""
        captures = _captures_of(step)
        try:
            values = self._capture(job, step, captures, outcome)
        except CaptureRefused as problem:
            return _fail_contract(outcome, redact(str(problem), self._secrets), "capture")
        named = msgspec.structs.replace(step, capture=captures)
        outcome = self._evaluators.complete(job, named, outcome, values[captures[0].name], at)
        value = outcome.values.get(captures[0].name)
        if not step.capture:
            outcome = msgspec.structs.replace(outcome, values={})
        if not self._state.is_end(job) or outcome.failure is not None:
            return outcome
        verdict = value.get("workflow_status") if isinstance(value, dict) else None
        if verdict is None:
            return outcome
        if verdict not in OVERRIDES:
            return _fail_contract(
                outcome, f"workflow_status is {str(verdict)[:60]!r}, not completed or failed", "verdict"
            )
        return msgspec.structs.replace(outcome, values={**outcome.values, "workflow_status": verdict})

    def _count_items(self, report: Ended, outcome: Outcome) -> Outcome:
        """Read the number of items that the program listed, the last word of its output; redact the items file."""
        assert outcome.log is not None
        words = self._output.read_output(outcome.log, "out", -64).split()
        if not words or not words[-1].isdigit():
            return _fail_contract(outcome, "the items were not listed", "items")
        if self._secrets:
            from resile.engine.items.listing import items_path, redact_items

            label = f"j{report.job}_r{self._state.epoch}_a{report.attempt}"
            try:
                redact_items(items_path(self._folder, label), self._secrets)
            except OSError as error:
                return _fail_contract(outcome, f"can't list the items: {error.strerror}", "items")
        return msgspec.structs.replace(outcome, values={"items": int(words[-1])})

    def _capture(self, job: Job, step: Step, captures: tuple[Capture, ...], outcome: Outcome) -> dict[str, Any]:
        """Capture an attempt's output, without secrets; raises CaptureRefused."""
        # In a handler `combined` joins the outputs of all its commands so far, so the last command that ran has
        # everything.
        joined = [one.name for one in captures if one.form == "combined"] if self._in_handler(job) else []
        own = tuple(Capture(one.name) if one.name in joined else one for one in captures if one.form != "file")
        files = {one.name: self._path_of_capture(job, one.name) for one in captures if one.form == "file"}
        try:
            values: dict[str, Any] = {name: capture_file(self._output, outcome.log, files[name]) for name in files}
        except OSError as error:
            raise CaptureRefused(f"can't write the output to a file: {error.strerror}") from error
        values |= capture_output(self._output, outcome.log, own, outcome.exit_code, outcome.usage.wall_seconds)
        try:
            before = self._values.texts.outputs_before(job) if joined else []
        except ValueRefused as problem:
            raise CaptureRefused(problem.message) from None
        values |= {name: "\n".join(filter(None, (*before, values[name]))) for name in joined}
        if step.transform is None:
            values |= {one.name: parse_result(values[one.name]) for one in captures if one.form == "value"}
        return {name: redact_value(value, self._secrets) for name, value in values.items()} if self._secrets else values

    def _path_of_capture(self, job: Job, name: str) -> str:
        """The path of the file that a job's output is captured to."""
        epoch = self._state.epoch
        return os.path.abspath(os.path.join(self._folder, "captured", f"j{job.id}_r{epoch}_a{job.attempt}_{name}"))

    def _in_handler(self, job: Job) -> bool:
        return self._state.scopes[job.scope].kind == "repair"

    def _check_spending(self, step: Step, outcome: Outcome) -> Outcome:
        """Fail an agent that reports an error, or having spent more than its limits."""
        if type(step.action) is not Agent:
            return outcome
        assert outcome.log is not None
        if problem := reported_error(self._output, outcome.log):
            return _fail_contract(outcome, problem, "agent error")
        problem = excess_spending(self._output, outcome.log, step.action)
        return _fail_contract(outcome, problem, "agent limit") if problem else outcome

    def _complete_failure(self, job: Job, step: Step, outcome: Outcome) -> Outcome:
        """Add the captures that any output allows to a failed outcome, for handlers and tolerant dependents."""
        if outcome.log is None or outcome.failure is None:
            return outcome
        captures: tuple[Capture, ...] = tuple(c for c in step.capture if c.form in ALWAYS_THERE)
        try:
            values = self._capture(job, step, captures, outcome) if captures else {}
        except CaptureRefused:
            values = {}
        failure = outcome.failure
        if isinstance(step.action, Validate) and failure.kind == Kind.EXIT:
            failure = msgspec.structs.replace(failure, kind=Kind.CHECK)
        if isinstance(step.action, Agent) and (failure.kind == Kind.SPAWN or failure.exit_code == 127):
            hint = f"is the agent {step.action.command[0]!r} installed? Name another with `agent: {{command: …}}`"
            failure = msgspec.structs.replace(failure, message=f"{failure.message} ({hint})")
        if self._secrets:
            failure = redact_failure(failure, self._secrets)
        if step.transform is not None:
            from resile.languages.liquid.scope import failed_value

            values = dict.fromkeys((capture.name for capture in step.capture), failed_value(failure))
        return msgspec.structs.replace(outcome, values=values, failure=failure)


def _captures_of(step: Step) -> tuple[Capture, ...]:
    """What a step captures; a transform needs the output even where no name captures it."""
    return step.capture or (() if step.transform is None else (Capture(step.name, "value"),))


def _fallback_owner_of(state: State, job: Job) -> Job | None:
    """The owner of the fallback that ends with this job, if all earlier commands of it succeeded."""
    scope = state.scopes[job.scope]
    if scope.kind != "repair":
        return None
    owner = state.jobs[scope.owner]
    if owner.rule < 0 or ladder_of(state.step_of(owner))[owner.rule].then != "fallback":
        return None
    final = scope.first + len(state.plan_of(scope.id).steps) - 1
    before = (state.jobs[number].status for number in range(scope.first, final))
    worked = all(status in (Status.completed, Status.skipped) for status in before)
    return owner if job.id == final and worked else None


def has_no_room(report: Ended) -> bool:
    """Did an attempt not start because there is no room for its output? The step has not failed then: it is retried."""
    return not report.log.segment and report.spawn_stage == "output" and report.spawn_error in (ENOSPC, EDQUOT)


def _fail_contract(outcome: Outcome, message: str, signature: str) -> Outcome:
    return msgspec.structs.replace(outcome, failure=contract_failure(message, signature, outcome.exit_code))
