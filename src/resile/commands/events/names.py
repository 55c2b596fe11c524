"""The names of events: those that a run writes, and other systems' names for them. No imports."""

from __future__ import annotations

# In the order in which a run writes them.
EVENT_TYPES = (
    "playbook_started", "workflow_initialized", "step_started", "attempt_started", "attempt_succeeded",
    "attempt_failed", "retry_scheduled", "repair_started", "repair_finished", "route_taken", "expression_rejected",
    "loop_budget_exceeded", "step.exit", "step_completed", "step_recovered", "step_cached", "step_failed",
    "step_skipped", "step_canceled", "step_parked", "step_judged", "items_listed", "map_progress", "item_dead_lettered",
    "circuit_opened", "circuit_half_opened", "circuit_closed", "threshold_reached", "errors_reported",
    "redrive_started", "redrive_finished", "run_resumed", "attempt_adopted", "attempt_lost", "cancel_requested",
    "nodes_scheduled", "allocation_submitted", "allocation_refused", "worker_started", "allocation_ended",
    "workflow_completed", "workflow_failed", "workflow_canceled", "playbook_completed", "playbook_failed",
    "playbook_canceled",
)  # fmt: skip

# Other systems' names for our types.
_OTHER_NAMES = {
    "playbook_started": "execution_started playbook.initialized playbook_initialized",
    "workflow_initialized": "workflow.initialized",
    "step_started": "step.enter",
    "step.exit": "step_exit",
    "step_failed": "step.failed",
    "step_skipped": "step.skipped",
    "step_canceled": "step_cancelled",
    "attempt_started": "action_started command.started",
    "attempt_succeeded": "action_completed command.completed call.done",
    "attempt_failed": "action_failed command.failed call.error",
    "retry_scheduled": "tool.retry",
    "items_listed": "iterator_started loop.started",
    "map_progress": "iteration_completed loop.item",
    "cancel_requested": "cancellation_requested",
    "workflow_completed": "workflow.completed",
    "workflow_failed": "workflow.failed",
    "workflow_canceled": "workflow_cancelled",
    "playbook_completed": "playbook.completed execution_completed",
    "playbook_failed": "playbook.failed execution_failed",
    "playbook_canceled": "playbook_cancelled execution.cancelled execution_cancelled",
    "circuit_opened": "CircuitOpen",
    "circuit_closed": "CircuitClosed",
    "circuit_half_opened": "CircuitHalfOpen",
}
# Accepted wherever a type can be named; a run writes only our own names.
ALIASES = {other: ours for ours, others in _OTHER_NAMES.items() for other in others.split()}
