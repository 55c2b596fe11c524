"""Helpers: steps that run for another step, called by its rules before it passes or by its `on_success` afterwards.

The step depends on everything that its helpers depend on. Its fingerprint names them: a step of the workflow by its
name, a step inside a rule by its path (`solve.on_failure/on_failure-1`).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from resile.model.failure import CHANGING, Fingerprint
from resile.model.nested import path_part, step_name
from resile.model.workflow import Step, Workflow


def helper_steps(workflow: Workflow) -> dict[str, list[Step]]:
    """The steps that may be helpers, by name or path; several rules may have a step with the same path."""
    found: dict[str, list[Step]] = {step.name: [step] for step in workflow.steps}
    for step in workflow.steps:
        for scope, inner in _written_inside(step):
            found.setdefault(step_name(scope, inner.name), []).append(inner)
    return found


def helper_scopes(workflow: Workflow) -> dict[str, str]:
    """The step of each scope in which the steps inside rules run."""
    return {scope: step.name for step in workflow.steps for scope, _ in _written_inside(step)}


def _written_inside(step: Step) -> Iterator[tuple[str, Step]]:
    """The steps that are written inside the rules of a step, or in its `on_success`, with their scopes."""
    part = path_part(step.name)
    for rule in step.rules:
        yield from ((f"{part}.on_failure", inner) for inner in (rule.repair.steps if rule.repair is not None else ()))
    yield from ((f"{part}.on_success", inner) for inner in (step.on_success.steps if step.on_success else ()))


def join(one: Fingerprint, other: Fingerprint) -> Fingerprint:
    """The joint fingerprint of two attempts; a file that they read in different states matches no state."""
    reads = {**one.reads, **other.reads}
    for path in one.reads.keys() & other.reads.keys():
        if one.reads[path] != other.reads[path]:
            reads[path] = CHANGING
    outputs, helpers = tuple({*one.outputs, *other.outputs}), {**one.helpers, **other.helpers}
    return replace(one, reads=reads, outputs=outputs, helpers=helpers)


def as_helper(name: str, fingerprint: Fingerprint | None) -> Fingerprint:
    """The part of a step's fingerprint that comes from one helper."""
    found = fingerprint or Fingerprint()
    return replace(found, env="", helpers={**found.helpers, name: found.env})
