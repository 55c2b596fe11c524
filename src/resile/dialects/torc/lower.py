"""Lowers a Torc file to a native tree: each job is a step, its edges are `needs`, its handler is rules.

    keys (keys.py) -> expansion (jobs, parameters) -> edges (dependencies) -> commands, rules -> actions -> native tree

A job waits for the jobs that it names and for those that write its inputs. With `cancel_on_blocking_job_failure: false`
it waits for their end, whatever their status.
"""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping, Mark, Node, Scalar, Sequence, describe
from resile.dialects.native.keys.steps import MONITOR_SECONDS_DEFAULT
from resile.dialects.native.nodes import WorkflowPart, items_of, node_of, sequence, step_node, text_in, value_of, word
from resile.dialects.reading.context import Reading
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import read_mapping
from resile.dialects.torc.actions import Steps, place_actions, place_allocations, read_actions, whatever_became_of
from resile.dialects.torc.cluster import make_cluster, read_schedulers, report_cluster_only
from resile.dialects.torc.commands import command_of, escape_references, torc_on_path
from resile.dialects.torc.dependencies import Dependencies
from resile.dialects.torc.jobs import Job, read_files, read_jobs, read_user_data
from resile.dialects.torc.keys import MONITOR, RESOURCES, WORKFLOW
from resile.dialects.torc.rules import Handler, make_parking_rule, read_handlers
from resile.dialects.torc.values import read_named, without_nulls
from resile.errors import shorten

RUNTIME_SECONDS_DEFAULT = 3_600.0
_TOP = Mark(1, 1)
_KILLED_AT_ONCE = word("grace", _TOP), node_of(0, _TOP)
_READS, _OUTPUTS = word("reads", _TOP), word("outputs", _TOP)
_Entry = tuple[Scalar, Node]
"""A key with its value, as an entry of a mapping."""


class Lowering:
    """State of lowering one file.

    `parts` caches keys of native steps that jobs share, by the handler or resources that the jobs name.
    """

    def __init__(self, reading: Reading, root: Mapping) -> None:
        self.reading = reading
        self.root = root
        self.fields = read_mapping(reading, root, WORKFLOW)
        self.shared: dict[str, Scalar] = self.fields.get("parameters", {})
        self.files = read_files(reading, self.fields.get("files"), self.shared)
        self.user_data = read_user_data(reading, self.fields.get("user_data"))
        self.resources = self._read_resources()
        self.handlers: dict[str, Handler] = read_handlers(reading, self.fields.get("failure_handlers"), self.user_data)
        self.schedulers = read_schedulers(reading, root, self.fields)
        self.jobs = read_jobs(reading, self.fields.get("jobs"), self.shared)
        self.dependencies = Dependencies(reading, root, self.jobs, self.files, self.user_data)
        self.names = self.dependencies.names
        self.used: set[tuple[str, str]] = set()
        self.machines: dict[str, int] = {}
        self.monitor_seconds = 0.0
        self.parts: dict[tuple[str, str], dict[str, _Entry]] = {}

    def lower(self) -> Mapping:
        """Make the native tree, as far as the file can be read."""
        self._check_labels()
        needed = self.dependencies.find_needed()
        texts = (text for job in self.jobs.values() for text in job.texts.values())
        self.dependencies.torc_on_path = torc_on_path(self.reading, texts, self.user_data, self.root)
        steps = Steps({name: self._make_step(job) for name, job in self.jobs.items()}, {})
        for name, job in self.jobs.items():
            always = job.fields.get("cancel_on_blocking_job_failure", True) is False
            steps.needs[name] = tuple(map(whatever_became_of, needed[name]) if always else needed[name])
        self.dependencies.refuse_cycles(needed)
        self.machines = self._find_machine_counts()
        actions, allocations = read_actions(
            self.reading, self.fields.get("actions"), self.jobs, self.schedulers, self.names, self.machines
        )
        self._sort(steps)
        place_actions(self.reading, steps, actions, self.user_data)
        self._report_steps(len(steps.entries) - ("end" in steps.entries) - len(self.jobs))
        self._check_used()
        return self._make_tree(steps, place_allocations(steps, allocations, self.jobs))

    def _make_tree(self, steps: Steps, allocations: list[Node]) -> Mapping:
        """Make the tree of the workflow with these steps."""
        if not steps.entries:
            steps.add("end", _TOP, {"noop": True})
        settings = {
            "schedulers": self.schedulers,
            "wanted": self._find_wanted_schedulers(),
            "nodes": self.machines,
            "allocations": allocations,
        }
        return WorkflowPart(
            _TOP,
            resile=1,
            name=self.root.entries["name"][1] if "name" in self.fields else None,
            shell_program="bash",
            resource_monitor={"interval": self.monitor_seconds} if self.monitor_seconds else None,
            failure_handlers={name: {"rules": handler.rules} for name, handler in self.handlers.items()},
            steps=steps.make_node(self.root),
            cluster=make_cluster(self.reading, self.root, self.fields, settings) or None,
        ).to_node()

    def _read_resources(self) -> dict[str, tuple[Mapping, dict[str, Any]]]:
        """Read the resource requirements by name."""
        given, what = self.fields.get("resource_requirements"), "the resource requirements"
        result = read_named(self.reading, given, RESOURCES, what, "num_cpus", "memory")
        report = self.reading.report
        for name, (node, fields) in result.items():
            if name == "default":
                message = "`default` is the name of what jobs have that ask for nothing"
                report.error("name", message, fields["name"], hint="call these requirements something else")
            elif "runtime" not in node.entries:
                message = "no `runtime`: an hour is what Torc assumes, and here it is enforced"
                report.notice("runtime", message, node, hint="write `runtime: PT4H` for four hours")
        return result

    def _check_labels(self) -> None:
        """Report missing keys, and keys without effect."""
        report = self.reading.report
        if "name" not in self.root.entries:
            report.error("value", "the workflow has no `name`", self.root)
        if "jobs" not in self.root.entries:
            report.error("value", "the workflow has no `jobs`", self.root, hint="a list of jobs, `[]` for none")
        monitor = self.fields.get("resource_monitor")
        if isinstance(monitor, Mapping):
            known = {key: entry for key, entry in monitor.entries.items() if key in MONITOR.keys}
            for name in [name for name in monitor.entries if name not in known]:
                # Torc accepts any key here, and only here.
                message = f"`{shorten(name)}` of `resource_monitor` changes nothing: Resile has no such setting"
                hint = did_you_mean(name, MONITOR.keys, "keys")
                report.warning("unknown-key", message, monitor.entries[name][0], hint=hint)
            fields = read_mapping(self.reading, without_nulls(Mapping(known, monitor.line, monitor.column)), MONITOR)
            self._read_monitor(monitor, fields)
        elif monitor is not None:
            report.error("type", f"`resource_monitor` must be a mapping, not {describe(monitor)}", monitor)

    def _read_monitor(self, monitor: Mapping, fields: dict[str, Any]) -> None:
        """Take samples where Torc would keep a series of them; peaks are always measured."""
        report, place = self.reading.report, self.root.entries["resource_monitor"][0]
        series = str(fields.get("granularity", "")).lower().replace("_", "") == "timeseries"
        if series and fields.get("enabled", True):
            self.monitor_seconds = float(fields.get("sample_interval_seconds", MONITOR_SECONDS_DEFAULT))
            if fields.get("generate_plots"):
                message = "`generate_plots` changes nothing: `resile resources RUN --plot FILE` draws the samples"
                report.notice("label", message, monitor.entries["generate_plots"][0])
            return
        message = "`resource_monitor` changes nothing: what an attempt uses is measured by the kernel, always"
        report.notice("label", message, place, hint="see `resile resources`; `granularity: time_series` takes samples")

    def _make_step(self, job: Job) -> _Entry:
        """Make the step of a job, without its needs; jobs that name the same handler or resources share those nodes."""
        name, place = job.at("name"), job.at("command")
        command = command_of(self.reading, job, self.dependencies)
        entries: dict[str, _Entry] = {"shell": (place, Scalar(command, command, place.line, place.column))}
        entries |= self._failure_keys_of(job)
        if not job.fields.get("supports_termination"):
            entries["grace"] = _KILLED_AT_ONCE
        for key, listed in ((_READS, "input_files"), (_OUTPUTS, "output_files")):
            if paths := self._paths_of(job, listed):
                entries[key.text] = key, Sequence(paths, name.line, name.column)
        given = {
            data: datum.text for data in job.lists.get("input_user_data", {}) if (datum := self.user_data.get(data))
        }
        if given:
            entries |= step_node(name, {"reads_data": node_of(given, name)}).entries
        entries |= self._resource_keys_of(job)
        key = Scalar(job.name, job.name, name.line, name.column)
        return key, Mapping(entries, name.line, name.column)

    def _paths_of(self, job: Job, listed: str) -> list[Node]:
        """The paths of the files that a job lists under a key."""
        files = job.lists.get(listed, {}).items()
        return [word(escape_references(self.files[file]), node) for file, node in files if file in self.files]

    def _failure_keys_of(self, job: Job) -> dict[str, _Entry]:
        """The keys for a job's failures: its handler, and the rule that parks failures that no rule answers."""
        node: Scalar | None = job.fields.get("failure_handler")
        if node is not None and not self._is_known(node.text, node, self.handlers, "failure handler"):
            node = None
        part = "failure_handler", "" if node is None else node.text
        if part not in self.parts:
            entries: dict[str, Node] = {} if node is None else {"failure_handler": node}
            handler = None if node is None else self.handlers[node.text]
            if self.fields.get("use_pending_failed", False) and (handler is None or not handler.catches_all):
                parking = make_parking_rule(() if handler is None else handler.listed)
                entries = {"rules": sequence([*entries.values(), parking], self.root)}
            self.parts[part] = step_node(self.root, entries).entries
        return self.parts[part]

    def _is_known(self, name: str, node: Scalar, existing: dict[str, Any], what: str) -> bool:
        """Does this name exist? Mark it as used."""
        self.used.add((what, name))
        return bool(self.names.find_known({name: node}, existing, what))

    def _resource_keys_of(self, job: Job) -> dict[str, _Entry]:
        """The keys for the resources of a job."""
        name = job.texts.get("resource_requirements")
        if name is None or not self._is_known(name, job.at("resource_requirements"), self.resources, "requirement"):
            return {}
        part = "resource_requirements", name
        if part not in self.parts:
            node, fields = self.resources[name]
            share = {
                "cpus": fields["num_cpus"],
                "memory": fields["memory"],
                "enforce": False,
                "gpus": fields.get("num_gpus", 0),
                "runtime": fields.get("runtime", RUNTIME_SECONDS_DEFAULT),
            }
            self.parts[part] = step_node(node, {"resources": node_of(share, node)}).entries
        return self.parts[part]

    def _find_wanted_schedulers(self) -> dict[str, str]:
        """Find the scheduler of each job that names one."""
        return {
            job.name: name
            for job in self.jobs.values()
            if (name := job.texts.get("scheduler")) is not None
            and self._is_known(name, job.at("scheduler"), self.schedulers, "scheduler")
        }

    def _find_machine_counts(self) -> dict[str, int]:
        """Find the number of machines of each job that needs more than one."""
        counts = {name: fields.get("num_nodes", 1) for name, (_, fields) in self.resources.items()}
        for name, (node, _) in self.resources.items():
            if counts[name] > 1:
                report_cluster_only(self.reading, node.entries["num_nodes"][0], "`num_nodes`")
        found = {job.name: counts.get(job.texts.get("resource_requirements", ""), 1) for job in self.jobs.values()}
        return {name: count for name, count in found.items() if count > 1}

    def _sort(self, steps: Steps) -> None:
        """Sort jobs that become ready together by size, largest first, if the file asks for it."""
        method = self.fields.get("jobs_sort_method", "none")
        if method == "none":
            return

        def size_of(name: str) -> tuple[float, float, float]:
            """The resources of a step, the most important first."""
            wanted = self.jobs[name].texts.get("resource_requirements", "") if name in self.jobs else ""
            share = self.resources[wanted][1] if wanted in self.resources else {}
            runtime, memory = share.get("runtime", RUNTIME_SECONDS_DEFAULT if share else 0.0), share.get("memory", 0)
            rest = (-runtime, -memory) if method == "gpus_runtime_memory" else (-memory, -runtime)
            return (-share.get("num_gpus", 0), *rest)

        steps.entries = {name: steps.entries[name] for name in sorted(steps.entries, key=size_of)}

    def _report_steps(self, more: int) -> None:
        """Report why there are more steps than jobs."""
        if more:
            jobs = "1 job" if len(self.jobs) == 1 else f"{len(self.jobs)} jobs"
            steps = "1 more step" if more == 1 else f"{more} more steps"
            reason = "for its actions"
            self.reading.report.notice("steps", f"the workflow has {jobs} and {steps}, {reason}", self.root)

    def _check_used(self) -> None:
        """Warn of failure handlers and parameters that nothing uses."""
        for name, handler in self.handlers.items():
            if ("failure handler", name) not in self.used:
                message = f"no job has the failure handler `{shorten(name)}`"
                self.reading.report.warning("unused", message, handler.node)
        taken = {name for key in ("jobs", "files") for name in _parameters_used_in(self.fields.get(key))}
        for name, node in self.shared.items():
            if name not in taken:
                message = f"nothing uses the parameter `{shorten(name)}`"
                hint = "jobs and files take it by `use_parameters`"
                self.reading.report.warning("unused", message, node, hint=hint)


def _parameters_used_in(section: Node | None) -> set[str]:
    """The shared parameters that the entries of a section use."""
    found: set[str] = set()
    for item in section.items if isinstance(section, Sequence) else ():
        used = value_of(item, "use_parameters") if isinstance(item, Mapping) else None
        found |= {text_in(node) for node in items_of(used)} if used is not None else set()
    return found
