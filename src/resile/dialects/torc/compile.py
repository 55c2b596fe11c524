"""The Torc front end: a mapping with a list of jobs becomes a Workflow.

    YAML, JSON (tree), JSON5, KDL -> keys (torc_keys) -> expansion (torc_jobs, torc_parameters)
        -> edges by names, patterns, files and data (here) -> commands (torc_commands), rules (torc_rules)
        -> actions (torc_actions) -> Workflow

A job waits for the jobs it names and for those that write what it reads. With `cancel_on_blocking_job_failure: false`
it waits for their end, good or bad: it needs each of them or a step that always succeeds.
"""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, describe
from resile.dialects.reading.context import Reading, Source
from resile.dialects.reading.diagnostics import Diagnostics
from resile.dialects.reading.key_tables import read_mapping
from resile.dialects.reading.suggestions import did_you_mean
from resile.dialects.torc.actions import BEGIN, free_name, place_actions, read_actions
from resile.dialects.torc.cluster import kept_for_clusters, read_schedulers, read_workers
from resile.dialects.torc.commands import Named, add_referred, command_of
from resile.dialects.torc.graph import refuse_cycles
from resile.dialects.torc.jobs import Datum, Job, Names, read_files, read_jobs, read_user_data
from resile.dialects.torc.keys import MONITOR, RESOURCES, TABLES, WORKFLOW
from resile.dialects.torc.rules import Handler, parking, read_handlers
from resile.dialects.torc.values import read_list, take_name, without_nulls
from resile.errors import shorten
from resile.model.cluster import Cluster
from resile.model.limits import STEPS_MAX
from resile.model.rules import Origin, Rule
from resile.model.workflow import Need, Noop, Resources, Step, Workflow

__all__ = ["TABLES", "compile_torc"]

RUNTIME_SECONDS_DEFAULT = 3_600.0
EDGES_MAX = 10 * STEPS_MAX


def compile_torc(source: Source, root: Node | None, report: Diagnostics) -> Workflow | None:
    """The workflow in a Torc file, or None where it has an error; JSON5 and KDL come as text, without a root."""
    tree = root if root is not None else _parsed(source, report)
    if tree is not None and not isinstance(tree, Mapping):
        report.error("type", f"a Torc file is a mapping, not {describe(tree)}", tree)
    if not isinstance(tree, Mapping):
        return None
    workflow = _Compiler(Reading(source, report), without_nulls(tree)).workflow()
    return None if report.errors else workflow


def _parsed(source: Source, report: Diagnostics) -> Node | None:
    """The tree of a file that is not YAML."""
    if source.file.lower().endswith(".kdl"):
        from resile.dialects.formats.kdl import parse_kdl

        return parse_kdl(source.data, report)
    from resile.dialects.formats.json5 import parse_json5

    return parse_json5(source.data, report)


class _Compiler:
    """Everything that is known of one file while it is compiled."""

    def __init__(self, reading: Reading, root: Mapping) -> None:
        self.reading = reading
        self.root = root
        self.fields = read_mapping(reading, root, WORKFLOW)
        self.names = Names(reading)
        self.shared: dict[str, Scalar] = self.fields.get("parameters", {})
        self.files = read_files(reading, self.fields.get("files"), self.shared)
        self.user_data: dict[str, Datum] = read_user_data(reading, self.fields.get("user_data"))
        self.resources = self._read_resources()
        self.handlers: dict[str, Handler] = read_handlers(reading, self.fields.get("failure_handlers"))
        self.schedulers = read_schedulers(reading, root, self.fields)
        self.jobs = read_jobs(reading, self.fields.get("jobs"), self.shared)
        self.used: set[tuple[str, str]] = set()

    def workflow(self) -> Workflow:
        """The workflow as far as it can be read; what is wrong is reported."""
        self._check_labels()
        needed = self._edges()
        begin = free_name(BEGIN, self.jobs)
        steps = tuple(self._step(job, needed[name], begin) for name, job in self.jobs.items())
        refuse_cycles(self.reading.report, needed, self.jobs)
        actions, allocations = read_actions(
            self.reading, self.fields.get("actions"), self.jobs, self.schedulers, self.names
        )
        waits = any(action.trigger == "on_jobs_complete" for action in actions)
        if waits or any(begin in need.any_of for step in steps for need in step.needs):
            steps = (*steps, Step(name=begin, action=Noop(), origin=Origin(self.root.line, self.root.column)))
        placed = place_actions(self.reading, self._sorted(steps), actions, begin)
        self._tell_of_steps(len(placed.steps) - len(self.jobs))
        self._check_used()
        cluster = Cluster(
            self.schedulers,
            allocations,
            self._wanted(),
            self._nodes(),
            read_workers(self.reading, self.root, self.fields),
        )
        return Workflow(
            name=self.fields.get("name", "workflow"),
            dialect="torc",
            file=self.reading.source.file,
            folder=self.reading.source.folder,
            steps=placed.steps,
            end=placed.end,
            failure_handlers={name: handler.rules for name, handler in self.handlers.items()},
            cluster=None if cluster == Cluster() else cluster,
        )

    def _read_resources(self) -> dict[str, tuple[Mapping, dict[str, Any]]]:
        """The requirements by their names."""
        result: dict[str, tuple[Mapping, dict[str, Any]]] = {}
        given = self.fields.get("resource_requirements")
        for node, fields in read_list(self.reading, given, RESOURCES, "name", "num_cpus", "memory"):
            name: Scalar = fields["name"]
            if name.text == "default":
                message = "`default` is the name of what jobs have that ask for nothing"
                self.reading.report.error("name", message, name, hint="call these requirements something else")
            elif take_name(self.reading, result, name, "the resource requirements"):
                result[name.text] = (node, fields)
                if "runtime" not in node.entries:
                    message = "no `runtime`: an hour is what Torc assumes, and here it is enforced"
                    self.reading.report.notice("runtime", message, node, hint="write `runtime: PT4H` for four hours")
        return result

    def _check_labels(self) -> None:
        """What a file must say, and what changes nothing."""
        report = self.reading.report
        if "name" not in self.root.entries:
            report.error("value", "the workflow has no `name`", self.root)
        if "jobs" not in self.root.entries:
            report.error("value", "the workflow has no `jobs`", self.root, hint="a list of jobs, `[]` for none")
        monitor = self.fields.get("resource_monitor")
        if isinstance(monitor, Mapping):
            known = {word: entry for word, entry in monitor.entries.items() if word in MONITOR.keys}
            for word in [word for word in monitor.entries if word not in known]:
                # Torc takes any word here, and here alone.
                message = f"`{shorten(word)}` of `resource_monitor` changes nothing: Resile has no such setting"
                hint = did_you_mean(word, MONITOR.keys, "keys")
                report.warning("unknown-key", message, monitor.entries[word][0], hint=hint)
            read_mapping(self.reading, without_nulls(Mapping(known, monitor.line, monitor.column)), MONITOR)
            message = "`resource_monitor` changes nothing: what an attempt uses is measured by the kernel, always"
            report.notice("label", message, self.root.entries["resource_monitor"][0], hint="see `resile metrics`")
        elif monitor is not None:
            report.error("type", f"`resource_monitor` must be a mapping, not {describe(monitor)}", monitor)

    def _edges(self) -> dict[str, dict[str, Scalar]]:
        """For each job the jobs it waits for, each with the place that says so."""
        self.named = Named(self.files, self.user_data, {})
        for job in self.jobs.values():
            add_referred(self.names, job, self.named)
            for kind, existing, what in (("file", self.files, "file"), ("user_data", self.user_data, "user data")):
                self._resolve(job, kind, existing, what)
        writers: dict[str, dict[str, list[str]]] = {"files": {}, "user_data": self.named.producers}
        for job in self.jobs.values():
            for kind, found in writers.items():
                for name in job.lists.get(f"output_{kind}", ()):
                    found.setdefault(name, []).append(job.name)
        self._check_inputs(writers["files"])
        total = 0
        result: dict[str, dict[str, Scalar]] = {}
        for job in self.jobs.values():
            result[job.name] = self._needed(job, writers) if total <= EDGES_MAX else {}
            total += len(result[job.name])
        if total > EDGES_MAX:
            hint = "a job between two stages waits for the first and is waited for by the second"
            self.reading.report.error(
                "limit", f"the jobs have more than {EDGES_MAX} dependencies", self.root, hint=hint
            )
        return result

    def _resolve(self, job: Job, kind: str, existing: dict[str, Any], what: str) -> None:
        """The files or data of a job, by names and by patterns."""
        for way in ("input", "output"):
            word = f"{way}_files" if kind == "file" else f"{way}_user_data"
            listed, patterns = job.lists.get(word, {}), job.lists.get(f"{way}_{kind}_regexes", {})
            if not listed and not patterns:
                continue
            place = next(iter((*listed.values(), *patterns.values())))
            found = {name: listed[name] for name in self.names.known(listed, existing, what)}
            found.update(dict.fromkeys(self.names.matching(patterns, existing, what), place))
            job.lists[word] = found

    def _check_inputs(self, writers: dict[str, list[str]]) -> None:
        """A file that jobs read and that no job writes must be there before they run."""
        import os

        told: set[str] = set()
        for job in self.jobs.values():
            for name, node in job.lists.get("input_files", {}).items():
                if name in writers or name in told:
                    continue
                told.add(name)
                if not os.path.exists(self.files[name]):
                    message = (
                        f"no job writes the file `{shorten(name)}`, and `{shorten(self.files[name])}` is not there"
                    )
                    hint = "paths are seen from the folder that the run is started in"
                    self.reading.report.warning("missing-file", message, node, hint=hint)

    def _needed(self, job: Job, writers: dict[str, dict[str, list[str]]]) -> dict[str, Scalar]:
        """What a job waits for."""
        listed, patterns = job.lists.get("depends_on", {}), job.lists.get("depends_on_regexes", {})
        found = {name: listed[name] for name in self.names.known(listed, self.jobs, "job")} if listed else {}
        if job.name in found:
            self.reading.report.error("cycle", f"the job `{shorten(job.name)}` waits for itself", found.pop(job.name))
        if patterns:
            place = next(iter(patterns.values()))
            for name in self.names.matching(patterns, self.jobs, "job", job.name):
                found.setdefault(name, place)
        for kind, by_name in writers.items():
            for name, node in job.lists.get(f"input_{kind}", {}).items():
                for other in by_name.get(name, ()):
                    if other != job.name:
                        found.setdefault(other, node)
        return found

    def _step(self, job: Job, needed: dict[str, Scalar], begin: str) -> Step:
        """The step of a job."""
        always = job.fields.get("cancel_on_blocking_job_failure", True) is False
        name: Scalar = job.at("name")
        return Step(
            name=job.name,
            action=command_of(self.reading, job, self.named),
            needs=tuple([Need((other, begin) if always else (other,)) for other in needed]),
            rules=self._rules(job),
            # Without time to end well a job is killed at once.
            grace_seconds=None if job.fields.get("supports_termination") else 0.0,
            outputs=tuple(
                _literal(self.files[file]) for file in job.lists.get("output_files", ()) if file in self.files
            ),
            resources=self._share(job),
            origin=Origin(name.line, name.column),
        )

    def _rules(self, job: Job) -> tuple[Rule, ...]:
        """What answers the failures of a job."""
        parks = self.fields.get("use_pending_failed", False)
        node: Scalar | None = job.fields.get("failure_handler")
        if node is None or not self._is_known(node.text, node, self.handlers, "failure handler"):
            return (parking(),) if parks else ()
        return self.handlers[node.text].ladder(parks)

    def _is_known(self, name: str, node: Scalar, existing: dict[str, Any], what: str) -> bool:
        """Is there something of this name? It is used, then."""
        self.used.add((what, name))
        return bool(self.names.known({name: node}, existing, what))

    def _share(self, job: Job) -> Resources | None:
        """What a job takes of the machine."""
        name = job.texts.get("resource_requirements")
        if name is None or not self._is_known(name, job.at("resource_requirements"), self.resources, "requirement"):
            return None
        fields = self.resources[name][1]
        return Resources(
            float(fields["num_cpus"]),
            fields["memory"],
            fields.get("num_gpus", 0),
            fields.get("runtime", RUNTIME_SECONDS_DEFAULT),
        )

    def _wanted(self) -> dict[str, str]:
        """Which scheduler each job wants."""
        return {
            job.name: name
            for job in self.jobs.values()
            if (name := job.texts.get("scheduler")) is not None
            and self._is_known(name, job.at("scheduler"), self.schedulers, "scheduler")
        }

    def _nodes(self) -> dict[str, int]:
        """The jobs that want more than one machine."""
        result: dict[str, int] = {}
        for job in self.jobs.values():
            node, fields = self.resources.get(job.texts.get("resource_requirements", ""), (None, {}))
            if node is not None and fields.get("num_nodes", 1) > 1:
                result[job.name] = fields["num_nodes"]
        for node, fields in self.resources.values():
            if fields.get("num_nodes", 1) > 1:
                kept_for_clusters(self.reading, node.entries["num_nodes"][0], "`num_nodes`")
        return result

    def _sorted(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """The order in which jobs start that become ready together: the largest first, or as they are written."""
        method = self.fields.get("jobs_sort_method", "none")
        if method == "none":
            return steps

        def size(step: Step) -> tuple[float, float, float]:
            """What a step takes, the most important first."""
            share = step.resources or Resources()
            runtime, memory = share.runtime_seconds or 0.0, float(share.memory_bytes)
            return (-share.gpus, *((-runtime, -memory) if method == "gpus_runtime_memory" else (-memory, -runtime)))

        return tuple(sorted(steps, key=size))

    def _tell_of_steps(self, more: int) -> None:
        """Say why there are more steps than jobs."""
        if more:
            jobs = "1 job" if len(self.jobs) == 1 else f"{len(self.jobs)} jobs"
            steps = "1 more step" if more == 1 else f"{more} more steps"
            message = (
                f"the workflow has {jobs} and {steps}, for its actions and for jobs that run whatever became of others"
            )
            self.reading.report.notice("steps", message, self.root)

    def _check_used(self) -> None:
        """Rules and parameters that nothing uses are probably a mistake."""
        for name, handler in self.handlers.items():
            if ("failure handler", name) not in self.used:
                message = f"no job has the failure handler `{shorten(name)}`"
                self.reading.report.warning("unused", message, handler.node)
        sections = [self.fields.get(word) for word in ("jobs", "files")]
        taken = {name for section in sections for name in _used_parameters(section)}
        for name, node in self.shared.items():
            if name not in taken:
                message = f"nothing uses the parameter `{shorten(name)}`"
                hint = "jobs and files take it by `use_parameters`"
                self.reading.report.warning("unused", message, node, hint=hint)


def _used_parameters(section: Node | None) -> set[str]:
    """The shared parameters that the entries of a section take."""
    found: set[str] = set()
    for item in getattr(section, "items", ()):
        entry = item.entries.get("use_parameters") if isinstance(item, Mapping) else None
        if entry is not None:
            found |= {node.text for node in getattr(entry[1], "items", [entry[1]]) if isinstance(node, Scalar)}
    return found


def _literal(path: str) -> str:
    """A path in which nothing is taken for a value."""
    return path.replace("${", "\\${") if "${" in path else path
