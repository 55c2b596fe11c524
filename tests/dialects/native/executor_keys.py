"""Cases of the keys of `executor`."""

from __future__ import annotations

from resile.model.executor import ExecutorSettings
from tests.dialects.compiling import workflow_with

_WRITTEN: dict[str, tuple[str, dict[str, object]]] = {
    "provider": ("slurm", {"provider": "slurm"}),
    "account": ("proj", {"account": "proj"}),
    "partition": ("short", {"partition": "short"}),
    "qos": ("high", {"qos": "high"}),
    "walltime": ("'01:30:00'", {"walltime_seconds": 5400.0}),
    "nodes_per_block": ("2, provider: slurm", {"nodes_per_block": 2, "provider": "slurm"}),
    "blocks_min": ("1", {"blocks_min": 1}),
    "blocks_max": ("3", {"blocks_max": 3}),
    "workers_per_node": ("4", {"workers_per_node": 4}),
    "idle": ("5m", {"idle_seconds": 300.0}),
    "queue_limit": ("2h", {"queue_limit_seconds": 7200.0}),
    "grace": ("30s", {"grace_seconds": 30.0}),
    "worker_init": ("module load x", {"worker_init": "module load x"}),
    "address": ("login1", {"address": "login1"}),
}


def _executor(more: str) -> ExecutorSettings | None:
    """The executor of a file with these keys."""
    return workflow_with(f"executor: {{kind: parsl, directory: d{more}}}").executor


EXECUTOR_CASES: dict[tuple[str, str], list[tuple[object, object]]] = {
    ("the workflow", "executor"): [(_executor(""), ExecutorSettings(directory="d"))],
    ("executor", "kind"): [(_executor(""), ExecutorSettings(directory="d"))],
    ("executor", "directory"): [(_executor(""), ExecutorSettings(directory="d"))],
    **{
        ("executor", key): [
            (_executor(f", {key}: {text}"), ExecutorSettings(directory="d", **fields))  # type: ignore[arg-type]
        ]
        for key, (text, fields) in _WRITTEN.items()
    },
}
