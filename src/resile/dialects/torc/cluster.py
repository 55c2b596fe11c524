"""The cluster settings of a Torc file, for an executor with a cluster; a run on one machine does without them.

slurm_schedulers, slurm_defaults    -> Scheduler
actions with schedule_nodes         -> Allocation
scheduler and num_nodes of jobs     -> requirements of a step
compute_node_...                    -> Workers
"""

from __future__ import annotations

import re
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
# By these Resile knows its allocations again.
_RESERVED = ("array", "clusters", "comment", "error", "output", "parsable", "requeue", "wait", "wrap")
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
_WORKERS = {
    "compute_node_expiration_buffer_seconds": "expiration_buffer_seconds",
    "compute_node_wait_for_new_jobs_seconds": "idle_seconds_max",
}
_LABELS = {
    "compute_node_ignore_workflow_completion": "allocations end with their run",
    "compute_node_wait_for_healthy_database_minutes": "allocations do not use the database",
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
        _refuse_lines(reading, node)
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
    """Read the common options of all schedulers; `true` is an option without a value, `false` none."""
    result: dict[str, str] = {}
    for name, value in given.items():
        option = name.replace("_", "-")
        if option in _NOT_DEFAULTS:
            hint = "write it into each scheduler"
            reading.report.error("value", f"`{shorten(name)}` can't be a default of schedulers", value, hint=hint)
        elif option in _RESERVED:
            reading.report.error("value", f"`{shorten(name)}` is an option that Resile itself needs", value)
        elif not _OPTION.fullmatch(option) or not value.text.isprintable():
            reading.report.error("value", f"`{shorten(name)}` is no option of `sbatch` in one line", value)
        elif value.value is not False:
            result[option] = "" if value.value is True else value.text
    return result


def _refuse_lines(reading: Reading, scheduler: Mapping) -> None:
    """Refuse values that would be more than one line of a script."""
    for key in _OPTIONS:
        value = scheduler.entries[key][1] if key in scheduler.entries else None
        if isinstance(value, Scalar) and not value.text.isprintable():
            reading.report.error("value", f"`{key}` must be one line of printable characters", value)


def make_cluster(reading: Reading, root: Mapping, fields: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Make the native `cluster`; it is empty if the file has no cluster settings."""
    cluster: dict[str, Any] = {key: part for key, part in parts.items() if part}
    usual, workers = Workers(), {}
    for key, field in _WORKERS.items():
        if key in root.entries:
            report_cluster_only(reading, root.entries[key][0], f"`{key}`")
            if key in fields and fields[key] != getattr(usual, field):
                workers[field] = fields[key]
    for key, why in _LABELS.items():
        if key in root.entries:
            reading.report.notice("label", f"`{key}` changes nothing: {why}", root.entries[key][0])
    if cluster or workers:
        cluster["workers"] = workers
    return cluster


def report_cluster_only(reading: Reading, place: Node, what: str) -> None:
    """Report that a key has no effect on one machine."""
    message = f"{what} is for Slurm: a run on this machine starts the jobs here"
    reading.report.notice("cluster", message, place)
