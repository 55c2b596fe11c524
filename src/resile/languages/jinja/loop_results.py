"""The results of a playbook's loops: a list in the order of the items, read from the log of the run.

    loop over one tool       the tool's result for each item
    over a playbook          the results of its steps, or of the one that `return_step` names
    over a pipeline          the result of its last tool

The list has an entry for each item, in their order; it is null for an item that failed, even if a rule handled the
failure, and for one that never ran.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from resile.core.events import AttemptEnded, EpochStarted, ValueAnswered
from resile.core.fanout.naming import fan_name, part_name
from resile.core.growth import add_grown
from resile.model.status import Status
from resile.model.workflow import Child, FanOut

if TYPE_CHECKING:
    from resile.core.state import Job
    from resile.languages.contract import JobRecord, Run
    from resile.model.failure import Outcome
    from resile.model.workflow import Workflow

FIRED = "cases"
"""The name under which an item's outcome, and the memory of a run, store the cases that held."""
ASKED_AGAIN = "again: "
"""The prefix of the failure signature of a success that asked for one more attempt."""


class LoopResults:
    """Reads the results of the loops of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._state = run.state

    def results(self, fan: Job) -> list[Any]:
        """The result of each item of a loop, by position."""
        action = self._state.step_of(fan).action
        assert isinstance(action, FanOut)
        gave = self._values_of(fan, action)
        went_well = {
            index for row, index in self._rows(fan, "", action.steps[-1].name) if row.status == Status.completed
        }
        total = self._state.fans[fan.id].total
        return [gave.get(index) if index in went_well else None for index in range(total)]

    def came_true(self, fan: Job) -> set[str]:
        """The cases that held for at least one item of a loop, at its last attempt."""
        action = self._state.step_of(fan).action
        assert isinstance(action, FanOut)
        inner = action.steps[-1]
        kind = ValueAnswered if isinstance(inner.action, Child) else AttemptEnded
        last = dict(self._outcomes(self._jobs_of_items(fan, "", inner.name), kind))
        return {number for outcome in last.values() for number in outcome.values.get(FIRED, ())}

    def _values_of(self, fan: Job, action: FanOut) -> dict[int, Any]:
        """The values of the last good attempts for the items, by index."""
        inner = action.steps[-1]
        if not isinstance(inner.action, Child):
            return self._of_step(fan, "", inner.name)
        if inner.transform is not None:
            return self._of_step(fan, "", inner.name, ValueAnswered)
        within = f"/{part_name(self._state, inner.name)}"
        if inner.action.shares:
            return self._last_of_each(fan, within, inner.action.workflow)
        wanted = inner.action.result
        if wanted:
            return self._of_step(fan, within, wanted)
        workflow = inner.action.workflow
        # An `end` that the playbook does not have gives nothing.
        steps = (*workflow.steps, workflow.end) if workflow.end.origin.line else workflow.steps
        parts = {step.name: self._of_step(fan, within, step.name) for step in steps}
        return {
            index: {name: found[index] for name, found in parts.items() if index in found}
            for index in {index for found in parts.values() for index in found}
        }

    def _of_step(
        self, fan: Job, within: str, name: str, kind: type[AttemptEnded | ValueAnswered] = AttemptEnded
    ) -> dict[int, Any]:
        places = self._jobs_of_items(fan, within, name)
        found = self._outcomes(places, kind)
        return {places[job]: outcome.values.get(name) for job, outcome in found if _is_good(outcome)}

    def _last_of_each(self, fan: Job, within: str, pipeline: Workflow) -> dict[int, Any]:
        """For each item, the value of the last tool of a pipeline that succeeded."""
        tools = {
            number: (index, step.name)
            for step in pipeline.steps
            for number, index in self._jobs_of_items(fan, within, step.name).items()
        }
        found = ((*tools[job], outcome) for job, outcome in self._outcomes(tools))
        return {index: outcome.values.get(name) for index, name, outcome in found if _is_good(outcome)}

    def _jobs_of_items(self, fan: Job, within: str, name: str) -> dict[int, int]:
        """The jobs of a step that runs for each item, or inside an item's step, with the index of the item."""
        return {row.id: index for row, index in self._rows(fan, within, name)}

    def _rows(self, fan: Job, within: str, name: str) -> Iterator[tuple[JobRecord, int]]:
        """Like `_jobs_of_items`, as rows of the store."""
        before = f"{fan_name(self._state, fan)}["
        for row in self._run.job_rows():
            number = row.scope.removeprefix(before).removesuffix(f"]{within}")
            if row.step == name and number.isdigit() and row.scope == f"{before}{number}]{within}":
                yield row, int(number)

    def _outcomes(
        self, jobs: Container[int], kind: type[AttemptEnded | ValueAnswered] = AttemptEnded
    ) -> Iterator[tuple[int, Outcome]]:
        """The outcomes of these jobs in this epoch, attempt by attempt, from events of this kind in the log."""
        found: list[tuple[int, Outcome]] = []
        gave: dict[int, dict[str, Any]] = {}
        for event in self._run.events():
            if isinstance(event, EpochStarted) and not event.failed_only:
                found.clear()
                gave.clear()
            elif isinstance(event, kind) and event.job in jobs:
                outcome, before = event.outcome, gave.get(event.job, {})
                if outcome.values_grown:
                    outcome = replace(outcome, values=add_grown(before, outcome.values, outcome.values_grown))
                gave[event.job] = {**before, **outcome.values}
                found.append((event.job, outcome))
        yield from found


def _is_good(outcome: Outcome) -> bool:
    """Did an attempt give a value: did it succeed, even if it then asked for one more attempt?"""
    return outcome.failure is None or outcome.failure.signature.startswith(ASKED_AGAIN)
