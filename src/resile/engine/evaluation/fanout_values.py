"""The values of a fan-out: the results of its items, the outcome of each, and its statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resile.core.events import AttemptEnded
from resile.core.fanout.naming import fan_action, fan_name
from resile.engine.evaluation.map_statistics import (
    end_of_item,
    item_jobs,
    letters_by_name,
    map_metrics,
    result_jobs,
    seconds_of,
)
from resile.languages.references import ValueRefused, parse_json, text_of, walk
from resile.model.limits import VALUE_BYTES_MAX
from resile.model.workflow import Function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from resile.core.fanout.progress import Fan
    from resile.core.state import Job, State
    from resile.engine.evaluation.output_texts import OutputTexts
    from resile.store.contract import Store


class FanoutValues:
    """Reads the values of the fan-outs of one run."""

    def __init__(self, store: Store, run: int, state: State, texts: OutputTexts) -> None:
        self._store = store
        self._run = run
        self._state = state
        self._texts = texts

    def find(self, path: Sequence[str | int], job: Job, fan: Fan) -> Any:
        """The value under a path, after the name of a fan-out."""
        if path[0] == "results":
            return walk(self.results(job), path[1:])
        if path[0] == "outcomes":
            return walk(self._outcomes(job), path[1:])
        # All letters are on disk: the step that reads them was started after the last of them was written.
        letters = self._store.letter_counts(self._run) if path[0] == "dead_letters" else []
        count = letters_by_name(letters).get(fan_name(self._state, job), 0)
        return walk({**map_metrics(fan, count), "total": fan.total}, path)

    def successful(self, job: Job) -> list[int]:
        """The indexes of the items that succeeded, in their order."""
        letters = {letter.index for letter in self._store.letters(self._run, fan_name(self._state, job))}
        begun = item_jobs(self._state, job, self._store.jobs(self._run))
        ended = {index: end_of_item(rows, None, self._failure_of, is_dropped=False)[0] for index, rows in begun.items()}
        return [index for index in sorted(ended) if ended[index] == "success" and index not in letters]

    def results(self, job: Job) -> list[Any]:
        """The results of the last step of each successful item, in the order of the items."""
        last = result_jobs(self._state, job, self._store.jobs(self._run))
        if isinstance(fan_action(self._state, job).steps[-1].action, Function):
            return self._results_of_calls(last)
        found: list[Any] = []
        size = 0
        for number in last:
            text = self._texts.last(number, "out")
            size += len(text)
            if size > VALUE_BYTES_MAX:
                raise ValueRefused(f"the results of {self._name(job)} are more than {VALUE_BYTES_MAX} bytes")
            found.append(parse_json(text))
        return found

    def _results_of_calls(self, jobs: Sequence[int]) -> list[Any]:
        """The values that these function calls returned, in this order, read from the log."""
        found: dict[int, Any] = dict.fromkeys(jobs)
        for entry in self._store.entries(self._run):
            event = entry.event
            if type(event) is AttemptEnded and event.job in found and event.outcome.failure is None:
                found[event.job] = next(iter(event.outcome.values.values()), None)
        return [found[job] for job in jobs]

    def _outcomes(self, job: Job) -> list[dict[str, Any]]:
        """The outcome of each item, in order: its id, its status, the output of its steps, its error."""
        name, action = fan_name(self._state, job), fan_action(self._state, job)
        letters = {letter.index: letter for letter in self._store.letters(self._run, name)}
        begun = item_jobs(self._state, job, self._store.jobs(self._run))
        own = {step.name for step in action.steps}
        is_dropped = action.policy.on_item_failure == "skip"
        found: list[dict[str, Any]] = []
        size = 0
        for index in sorted(begun.keys() | letters.keys()):
            rows = begun.get(index, [])
            output = "\n".join(text for row in rows if row.step in own and (text := self._texts.last(row.id, "out")))
            status, error = end_of_item(rows, letters.get(index), self._failure_of, is_dropped=is_dropped)
            outcome = {"item_id": f"{name}[{index}]", "status": status, "output": output, "error": error}
            size += len(text_of(outcome))
            if size > VALUE_BYTES_MAX:
                raise ValueRefused(f"the outcomes of {self._name(job)} are over {VALUE_BYTES_MAX} bytes")
            found.append({**outcome, "duration": seconds_of(rows)})
        return found

    def _failure_of(self, job: int) -> str:
        *_, last = (None, *self._store.attempts(self._run, job))
        return last.failure.message if last is not None and last.failure is not None else ""

    def _name(self, job: Job) -> str:
        return repr(self._state.step_of(job).name)
