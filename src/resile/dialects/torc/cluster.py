"""The cluster settings of a Torc file: stored for an executor with a cluster, and reported as unused.

slurm_schedulers, slurm_defaults    -> Scheduler
actions with schedule_nodes         -> Allocation
scheduler and num_nodes of jobs     -> requirements of a step
compute_node_...                    -> Workers
"""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.native.nodes import node_of
from resile.dialects.reading.context import Reading
from resile.dialects.torc.keys import SCHEDULER
from resile.dialects.torc.values import read_named
from resile.errors import shorten
from resile.model.cluster import Workers

WALLTIME_SECONDS_DEFAULT = 3_600.0
_OPTIONS = ("account", "partition", "mem", "gres", "qos", "tmp", "ntasks_per_node")
_NOT_DEFAULTS = ("partition", "nodes", "walltime", "time", "mem", "gres", "name", "job-name")
_WORKERS = {
    "compute_node_expiration_buffer_seconds": "expiration_buffer_seconds",
    "compute_node_wait_for_new_jobs_seconds": "idle_seconds_max",
    "compute_node_ignore_workflow_completion": "ignore_completion",
    "compute_node_wait_for_healthy_database_minutes": "database_minutes_max",
}


def read_schedulers(reading: Reading, root: Mapping, fields: dict[str, Any]) -> dict[str, Node]:
    """Read all schedulers by name, with their common options."""
    defaults = _read_defaults(reading, fields.get("slurm_defaults", {}))
    result: dict[str, Node] = {}
    for name, (node, given) in read_named(reading, fields.get("slurm_schedulers"), SCHEDULER, "the scheduler").items():
        if "account" not in given and "account" not in defaults:
            hint = "write `account` here or in `slurm_defaults`"
            reading.report.error("value", f"the scheduler `{shorten(name)}` has no `account`", node, hint=hint)
        if "num_nodes" in node.entries:
            place = node.entries["num_nodes"][0]
            reading.report.notice("alias", "`num_nodes` is taken as `nodes` here", place, hint="write `nodes`")
        scheduler = {
            "walltime_seconds": given.get("walltime", WALLTIME_SECONDS_DEFAULT),
            "nodes": given.get("nodes", 1),
            "options": defaults | {key.replace("_", "-"): str(given[key]) for key in _OPTIONS if key in given},
            "extra": given.get("extra", ""),
        }
        result[name] = node_of(scheduler, node)
    key = "slurm_schedulers" if result else "slurm_defaults"
    if key in root.entries:
        report_cluster_only(reading, root.entries[key][0], f"`{key}`")
    return result


def _read_defaults(reading: Reading, given: dict[str, Scalar]) -> dict[str, str]:
    """Read the common options of all schedulers."""
    for name in [key for key in given if key.replace("_", "-") in _NOT_DEFAULTS]:
        hint = "write it into each scheduler"
        reading.report.error("value", f"`{shorten(name)}` can't be a default of schedulers", given[name], hint=hint)
    return {name.replace("_", "-"): value.text for name, value in given.items()}


def make_cluster(reading: Reading, root: Mapping, fields: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Make the native `cluster`; it is empty if the file has no cluster settings."""
    cluster: dict[str, Any] = {key: part for key, part in parts.items() if part}
    usual, workers = Workers(), {}
    for key, field in _WORKERS.items():
        if key in root.entries:
            report_cluster_only(reading, root.entries[key][0], f"`{key}`")
            if key in fields and fields[key] != getattr(usual, field):
                workers[field] = fields[key]
    if cluster or workers:
        cluster["workers"] = workers
    return cluster


def report_cluster_only(reading: Reading, place: Node, what: str) -> None:
    """Report that a key has no effect on one machine."""
    message = f"{what} is kept for a cluster: a run on this machine starts the jobs here"
    reading.report.notice("cluster", message, place)
