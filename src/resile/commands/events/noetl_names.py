"""The events of a run under the names that NoETL's documents give them (`resile events list RUN --names noetl`).

    attempt_started  action_started            items_listed, attempt_* of a loop   iterator_started, iterator_completed
    attempt_*        action_completed|failed   step_* of an item                   iteration_completed
    *_canceled       *_cancelled               a playbook inside a playbook        its own first and last events

This is a view: events that have no name in NoETL are left out. A playbook that a step runs begins and ends with events
of its own, which have the number of the step's event that they are derived from; the tools of a pipeline appear as
steps inside their step, without an `end` of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from resile.commands.documents.runs import Event
from resile.model.nested import path_part
from resile.model.workflow import Child, FanOut, Step, Workflow

ROOT = "root"
FAILED_STEPS_SHOWN = 3
# Our type: NoETL's type and status.
NAMES: dict[str, tuple[str, str]] = {
    "playbook_started": ("playbook_started", "STARTED"),
    "workflow_initialized": ("workflow_initialized", "COMPLETED"),
    "step_started": ("step_started", "STARTED"),
    "attempt_started": ("action_started", "RUNNING"),
    "attempt_succeeded": ("action_completed", "COMPLETED"),
    "attempt_failed": ("action_failed", "FAILED"),
    "attempt_lost": ("action_failed", "FAILED"),
    "retry_scheduled": ("retry_scheduled", "PENDING"),
    "step_completed": ("step_completed", "COMPLETED"),
    "step_recovered": ("step_completed", "COMPLETED"),
    "step_cached": ("step_completed", "COMPLETED"),
    "step_failed": ("step_failed", "FAILED"),
    "step_skipped": ("step_skipped", "SKIPPED"),
    "step_canceled": ("step_cancelled", "CANCELLED"),
    "step_parked": ("warning", "PAUSED"),
    "step_judged": ("info", "RUNNING"),
    "cancel_requested": ("cancellation_requested", "RUNNING"),
    "expression_rejected": ("warning", "RUNNING"),
    "loop_budget_exceeded": ("error", "FAILED"),
    "run_resumed": ("info", "RUNNING"),
    "attempt_adopted": ("info", "RUNNING"),
    "workflow_completed": ("workflow_completed", "COMPLETED"),
    "workflow_failed": ("workflow_failed", "FAILED"),
    "workflow_canceled": ("workflow_cancelled", "CANCELLED"),
    "playbook_completed": ("playbook_completed", "COMPLETED"),
    "playbook_failed": ("playbook_failed", "FAILED"),
    "playbook_canceled": ("playbook_cancelled", "CANCELLED"),
}
_EXIT = {"completed": "COMPLETED", "failed": "FAILED", "skipped": "SKIPPED"}
_DONE = ("step_completed", "step_recovered", "step_cached")
_SETTLED = (*_DONE, "step_failed", "step_canceled", "step_skipped")


class _Place:
    """The state of one scope: its workflow or its loop, its failed steps, and the targets of its steps' arcs."""

    def __init__(self, workflow: Workflow | None, loop: Step | None = None, *, is_pipeline: bool = False) -> None:
        self.workflow = workflow
        self.is_pipeline = is_pipeline
        self.loop = loop
        inner = loop.action.steps if loop is not None and isinstance(loop.action, FanOut) else ()
        steps = (*workflow.steps, workflow.end) if workflow is not None else inner
        self.steps = {step.name: step for step in steps}
        self.failed: list[str] = []
        self.ended: list[str] = []
        self.led: dict[str, set[str]] = {}
        self.skipped = self.canceled = 0


def as_playbook(events: list[Event], workflow: Workflow) -> Iterator[Event]:
    """The events of a run under NoETL's names."""
    places = {ROOT: _Place(workflow)}
    will_retry = _failures_retried(events)
    for number, event in enumerate(events):
        place = _place_of(event, places)
        step = place.steps.get(event.step or "") if place is not None else None
        if place is not None:
            _remember(event, place)
        if place is not None and place.is_pipeline and event.step == "end":
            continue
        if place is None or place.loop is None:
            yield from _translate(event, step, place, number in will_retry)
        else:
            yield from _translate_item(event, step, place.loop, number in will_retry)
        if step is not None and event.type == "attempt_started":
            caller = place.loop if place is not None and place.loop is not None else step
            yield from _open_playbook(event, step, caller.name, places)


def _failures_retried(events: list[Event]) -> set[int]:
    """The numbers of the failed attempts that are followed by a retry."""
    found: set[int] = set()
    next_of: dict[int | None, str] = {}
    for number in range(len(events) - 1, -1, -1):
        event = events[number]
        if event.type in ("attempt_failed", "attempt_lost") and next_of.get(event.job) == "retry_scheduled":
            found.add(number)
        if event.type not in ("expression_rejected", "repair_started", "repair_finished"):
            next_of[event.job] = event.type
    return found


def _place_of(event: Event, places: dict[str, _Place]) -> _Place | None:
    """The scope of an event; the scope of an item is created on first use."""
    scope = event.scope
    if scope is None or scope in places:
        return places.get(scope or ROOT)
    before, _, number = scope.rpartition("[")
    loop = places.get(f"{before}[]") if number.removesuffix("]").isdigit() else None
    if loop is None:
        return None
    places[scope] = _Place(None, loop.loop)
    return places[scope]


def _path(scope: str, step: str) -> str:
    return path_part(step) if scope == ROOT else f"{scope}/{path_part(step)}"


def _remember(event: Event, place: _Place) -> None:
    """Record the outcome of a step, for the events of `end`."""
    name, kind = event.step or "", event.type
    if kind == "route_taken" and event.data.get("trigger") == "next":
        place.led.setdefault(name, set()).add(event.data["target"])
    elif kind == "step_started":
        place.led.pop(name, None)
    elif kind in _SETTLED:
        place.failed = [other for other in place.failed if other != name]
        if kind == "step_failed" and not event.data.get("tolerated"):
            place.failed.append(name)
        if kind in _DONE and name not in place.ended:
            place.ended.append(name)
        place.skipped += kind == "step_skipped"
        place.canceled += kind == "step_canceled"


def _translate(event: Event, step: Step | None, place: _Place | None, will_retry: bool) -> Iterator[Event]:
    """Translate one event; before the end of a step that ran a playbook, add that playbook's last events."""
    kind, data = event.type, event.data
    loops = step is not None and isinstance(step.action, FanOut)
    if kind == "items_listed":
        yield _rename(event, "iterator_started", "STARTED", data)
    elif kind == "step.exit":
        yield _rename(event, kind, _EXIT.get(event.status or "", "CANCELLED"), data)
    elif loops and kind in ("attempt_succeeded", "attempt_failed"):
        yield _rename(event, "iterator_completed", "COMPLETED" if kind == "attempt_succeeded" else "FAILED", data)
    elif kind in NAMES and not (loops and kind == "attempt_started"):
        if _child_of(event, step):
            yield from _close_playbook(event, step)
        more = _more(event, step, place, will_retry)
        if kind == "step_failed" and (event.step == "end" or (place is not None and place.is_pipeline)):
            # No path leads from `end`, or from a tool of a pipeline, to `end`.
            data = _without_route(data)
        yield _rename(event, *NAMES[kind], {**data, **more})


def _without_route(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in ("routed_to_end", "original_failed_step")}


def _child_of(event: Event, step: Step | None) -> dict[str, Any]:
    """The id and status of the playbook that a step ran, where this event reports its end; else empty."""
    is_over = "verdict" in event.data and event.type in ("attempt_succeeded", "attempt_failed")
    # The tools of a pipeline are part of its step.
    is_pipeline = step is not None and isinstance(step.action, Child) and step.action.shares
    if not is_over or is_pipeline:
        return {}
    inner = _path(event.scope or ROOT, event.step or "")
    return {"child_execution_id": f"{event.run}/{inner}", "child_status": event.data["verdict"]}


def _translate_item(event: Event, step: Step | None, loop: Step, will_retry: bool) -> Iterator[Event]:
    """Translate one event of an item to an event of its loop, with the item's index."""
    kind = event.type
    index = int((event.scope or ROOT).rpartition("[")[2].rstrip("]"))
    child = _child_of(event, step)
    if child:
        yield from _close_playbook(event, step)
    data = {**_without_route(event.data), **child, "index": index}
    event = structs.replace(event, step=loop.name)
    if kind in _SETTLED:
        yield _rename(event, "iteration_completed", NAMES[kind][1], data)
    elif kind == "step.exit":
        yield _rename(event, kind, _EXIT.get(event.status or "", "CANCELLED"), data)
    elif kind in NAMES and kind != "step_started":
        more = {"will_retry": will_retry} if kind == "attempt_failed" else {}
        yield _rename(event, *NAMES[kind], {**data, **more})


def _more(event: Event, step: Step | None, place: _Place | None, will_retry: bool) -> dict[str, Any]:
    """The additional data of NoETL's events."""
    kind = event.type
    data = event.data
    if kind in ("attempt_failed", "attempt_lost", "attempt_succeeded"):
        child = _child_of(event, step)
        if kind != "attempt_succeeded":
            return {**child, "error": data.get("message", ""), "will_retry": will_retry}
        if child:
            return child
    if kind == "step_failed":
        reason = data.get("message", "")
        return {"error": reason, "failure_reason": reason, "attempts": event.attempt}
    if kind == "step_skipped" and place is not None and place.failed:
        return {"reason": "upstream_failed"}
    if place is not None and kind.startswith(("workflow_", "playbook_")) and "failed_steps" in data:
        return _verdict(kind, data["failed_steps"], place)
    if step is None or place is None or place.workflow is None or step.name != "end":
        return {}
    injected = not step.origin.line
    if kind == "step_started":
        return _how_to_end(place, injected)
    return {"result": {"status": "aggregated"}} if injected and kind == "attempt_succeeded" else {}


def _verdict(kind: str, failed: list[str], place: _Place) -> dict[str, Any]:
    """The additional data of a playbook's last events."""
    found: dict[str, Any] = {"cancelled_steps_count": place.canceled, "skipped_steps_count": place.skipped}
    if kind == "workflow_failed":
        found |= {"error": f"Workflow failed at steps: {', '.join(failed)}", "end_step_failed": "end" in failed}
    elif kind == "playbook_failed":
        found["error"] = f"Playbook failed: {', '.join(failed[:FAILED_STEPS_SHOWN])}"
    return found


def _how_to_end(place: _Place, injected: bool) -> dict[str, Any]:
    """The steps whose paths led to `end`, and the reasons."""
    came = [name for name in place.ended if place.led.get(name, {"end"}) & {"end"}]
    found: dict[str, Any] = {"from": [*came, *place.failed]}
    written = {name: {arc.step for arc in place.steps[name].arcs} for name in came if name in place.steps}
    implicit = [name for name, targets in written.items() if "end" not in targets]
    if implicit:
        found |= {"implicit_route": True, "reason": "no_match" if written[implicit[0]] else "no_next"}
    if place.failed:
        found |= {"routed_to_end": True, "original_failed_step": place.failed[0], "failed_steps": list(place.failed)}
    return {**found, "auto_injected": True} if injected else found


def _open_playbook(event: Event, step: Step, caller: str, places: dict[str, _Place]) -> Iterator[Event]:
    """Open the scope of a playbook that a step runs, with its first events, or of a loop."""
    scope = _path(event.scope or ROOT, step.name)
    if isinstance(step.action, FanOut):
        places[f"{scope}[]"] = _Place(None, step)
    if not isinstance(step.action, Child):
        return
    places[scope] = _Place(step.action.workflow, is_pipeline=step.action.shares)
    if step.action.shares:
        return
    data = {"workflow": step.action.workflow.name, "parent_execution_id": event.run, "parent_step": caller}
    inner = structs.replace(event, scope=scope, step=None, job=None, attempt=None)
    yield _rename(inner, *NAMES["playbook_started"], data)
    yield _rename(inner, *NAMES["workflow_initialized"], {"steps": len(step.action.workflow.steps)})


def _close_playbook(event: Event, step: Step | None) -> Iterator[Event]:
    """The last events of a playbook that a step ran."""
    verdict = event.data["verdict"]
    failed: list[str] = event.data["failed_steps"]
    data = {"evaluated_by_end_step": True, "failed_steps": failed, "failed_steps_count": len(failed)}
    data["parent_execution_id"] = event.run
    if step is not None and isinstance(step.action, Child):
        data["total_steps"] = len(step.action.workflow.steps)
    inner = structs.replace(
        event, scope=_path(event.scope or ROOT, event.step or ""), step=None, job=None, attempt=None
    )
    for kind in ("workflow", "playbook"):
        name, status = NAMES[f"{kind}_{verdict}"]
        yield _rename(inner, name, status, data)


def _rename(event: Event, kind: str, status: str, data: dict[str, Any]) -> Event:
    return structs.replace(event, type=kind, status=status, data=data)
