"""`workflow` in the engine: the attempt computes the inputs of the child workflow."""

from __future__ import annotations

from typing import Any

from resile.engine.evaluation.input_types import to_declared_type
from resile.engine.launch import Attempt
from resile.engine.secrets import redact_value
from resile.languages.contract import render_data
from resile.languages.references import ValueRefused
from resile.model.failure import Outcome
from resile.model.workflow import Child


def prepare(attempt: Attempt) -> Outcome:
    """The inputs of the child: the given ones in their types, else their defaults; stored, so a secret is refused."""
    action, lookup = attempt.step.action, attempt.lookup
    assert isinstance(action, Child)
    computed: dict[str, Any] = render_data(action.inputs, lookup)
    known = action.workflow.inputs
    given = {
        name: to_declared_type(name, known[name], value) if name in known else value for name, value in computed.items()
    }
    given.update(lookup.args)
    for name, value in given.items():
        if redact_value(value, attempt.performer.secrets) != value:
            message = f"input {name!r} holds the value of a secret, and inputs are stored"
            raise ValueRefused(f"{message}; the child's steps have it in their environment")
    for name, declared in known.items():
        if name in given and declared.schema is not None:
            from resile.engine.evaluation.schemas import unmet

            if problem := unmet(declared.schema, given[name], f"input {name!r}"):
                raise ValueRefused(problem)
    values = {name: given.get(name, declared.default) for name, declared in known.items()}
    performer = attempt.performer
    kept = performer.values.store.kept_scope(performer.values.id, attempt.job.again) if attempt.job.again else None
    return Outcome(0, values=values, memory=attempt.memory, kept=kept.body if kept is not None else None)
