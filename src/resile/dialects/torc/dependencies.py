"""Dependencies of jobs: jobs that they name or match by patterns, and jobs that write the files that they read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from resile.dialects.formats.nodes import Mapping, Scalar
from resile.dialects.native.graph.edges import cycles_among
from resile.dialects.reading.context import Reading
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.torc.jobs import Datum, Job
from resile.dialects.torc.values import read_pattern
from resile.errors import shorten
from resile.model.limits import STEPS_MAX

EDGES_MAX = 10 * STEPS_MAX
CYCLE_JOBS_SHOWN = 50
REFERENCE = re.compile(r"\$\{(files|user_data)\.(input|output)\.([^}\n]*)\}")
_KINDS = {"files": ("file", "file"), "user_data": ("user_data", "user data")}
"""For each section: the word in the keys of its patterns, and what one entry is called."""


class Names:
    """Resolves names and patterns; reports an unknown name once for each position."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._reported: set[tuple[int, int]] = set()

    def find_known(self, names: dict[str, Scalar], existing: dict[str, Any], what: str) -> list[str]:
        """Find the names that exist; report the others."""
        found: list[str] = []
        for name, node in names.items():
            if name in existing:
                found.append(name)
            else:
                self.report_unknown(name, node, existing, what)
        return found

    def report_unknown(self, name: str, node: Scalar, existing: dict[str, Any], what: str) -> None:
        """Report an unknown name."""
        if self._remember(node):
            hint = did_you_mean(name, existing, f"each {what} here")
            self._reading.report.error("unknown-name", f"there is no {what} `{shorten(name)}`", node, hint=hint)

    def find_matching(
        self, sources: dict[str, Scalar], existing: dict[str, Any], what: str, but: str = ""
    ) -> list[str]:
        """Find the names that one of these patterns matches; report a pattern that matches none."""
        found: dict[str, None] = {}
        for source, node in sources.items():
            compiled = read_pattern(self._reading, source, node) if self._is_new(node) else None
            if compiled is None:
                continue
            search: Callable[[str], bool] = compiled.search
            names = [name for name in existing if name != but and search(name)]
            if not names and self._remember(node):
                message = f"the pattern `{shorten(source)}` matches no {what}"
                self._reading.report.error("unknown-name", message, node)
            found.update(dict.fromkeys(names))
        return list(found)

    def _is_new(self, node: Scalar) -> bool:
        return (node.line, node.column) not in self._reported

    def _remember(self, node: Scalar) -> bool:
        is_new = self._is_new(node)
        self._reported.add((node.line, node.column))
        return is_new


class Dependencies:
    """The files and data of all jobs, the jobs that write them, and the resulting dependencies."""

    def __init__(
        self,
        reading: Reading,
        root: Mapping,
        jobs: dict[str, Job],
        files: dict[str, str],
        user_data: dict[str, Datum],
    ) -> None:
        self.reading = reading
        self.root = root
        self.jobs = jobs
        self.files = files
        self.user_data = user_data
        self.sections: dict[str, dict[str, Any]] = {"files": files, "user_data": user_data}
        self.names = Names(reading)
        self.writers: dict[str, dict[str, list[str]]] = {"files": {}, "user_data": {}}
        self.torc_on_path = ""

    def find_needed(self) -> dict[str, dict[str, Scalar]]:
        """Find the jobs that each job waits for, with the node that names or implies each."""
        for job in self.jobs.values():
            self._add_references(job)
            for section in _KINDS:
                self._resolve(job, section)
        for job in self.jobs.values():
            for section, found in self.writers.items():
                for name in job.lists.get(f"output_{section}", ()):
                    found.setdefault(name, []).append(job.name)
        self._check_inputs()
        total = 0
        result: dict[str, dict[str, Scalar]] = {}
        for job in self.jobs.values():
            result[job.name] = self._find_needed_by(job) if total <= EDGES_MAX else {}
            total += len(result[job.name])
        if total > EDGES_MAX:
            hint = "a job between two stages waits for the first and is waited for by the second"
            message = f"the jobs have more than {EDGES_MAX} dependencies"
            self.reading.report.error("limit", message, self.root, hint=hint)
        return result

    def _add_references(self, job: Job) -> None:
        """Add the files and data that a job's command names to its lists."""
        for word in ("invocation_script", "command"):
            for section, way, name in REFERENCE.findall(job.texts.get(word, "")):
                if name in self.sections[section]:
                    job.lists.setdefault(f"{way}_{section}", {})[name] = job.at(word)
                else:
                    self.names.report_unknown(name, job.at(word), self.sections[section], _KINDS[section][1])

    def _resolve(self, job: Job, section: str) -> None:
        """Find the files or data of a job, by names and by patterns."""
        existing, (kind, what) = self.sections[section], _KINDS[section]
        for way in ("input", "output"):
            word = f"{way}_{section}"
            listed, patterns = job.lists.get(word, {}), job.lists.get(f"{way}_{kind}_regexes", {})
            if not listed and not patterns:
                continue
            place = next(iter((*listed.values(), *patterns.values())))
            found = {name: listed[name] for name in self.names.find_known(listed, existing, what)}
            found.update(dict.fromkeys(self.names.find_matching(patterns, existing, what), place))
            job.lists[word] = found

    def _check_inputs(self) -> None:
        """Warn of files and data that jobs read, that no job writes, and that do not exist; `run` then refuses."""
        import os

        first_use: dict[str, Scalar] = {}
        for job in self.jobs.values():
            for name, node in job.lists.get("input_files", {}).items():
                first_use.setdefault(name, node)
            for name, node in job.lists.get("input_user_data", {}).items():
                datum = self.user_data.get(name)
                if datum is not None and datum.text is None and name not in self.writers["user_data"]:
                    message = f"no job writes the user data `{shorten(name)}`, and it has no `data`"
                    hint = "give it `data`, or let a job have it as `output_user_data`"
                    self.reading.report.warning("missing-data", message, node, hint=hint)
        for name, node in first_use.items():
            if name not in self.writers["files"] and not os.path.exists(self.files[name]):
                message = f"no job writes the file `{shorten(name)}`, and `{shorten(self.files[name])}` is not there"
                hint = "paths are seen from the folder that the run is started in"
                self.reading.report.warning("missing-file", message, node, hint=hint)

    def _find_needed_by(self, job: Job) -> dict[str, Scalar]:
        """Find the jobs that a job waits for."""
        listed, patterns = job.lists.get("depends_on", {}), job.lists.get("depends_on_regexes", {})
        found = {name: listed[name] for name in self.names.find_known(listed, self.jobs, "job")} if listed else {}
        if job.name in found:
            self.reading.report.error("cycle", f"the job `{shorten(job.name)}` waits for itself", found.pop(job.name))
        if patterns:
            place = next(iter(patterns.values()))
            for name in self.names.find_matching(patterns, self.jobs, "job", job.name):
                found.setdefault(name, place)
        for section, by_name in self.writers.items():
            for name, node in job.lists.get(f"input_{section}", {}).items():
                for other in by_name.get(name, ()):
                    if other != job.name:
                        found.setdefault(other, node)
        return found

    def refuse_cycles(self, needed: dict[str, dict[str, Scalar]]) -> None:
        """Report one cycle of jobs that wait for each other, if there is one."""
        cycle = next(cycles_among(needed), None)
        if cycle is None:
            return
        shown = [f"`{shorten(job)}`" for job in cycle[:CYCLE_JOBS_SHOWN]]
        if len(cycle) > CYCLE_JOBS_SHOWN:
            shown.append(f"{len(cycle) - CYCLE_JOBS_SHOWN} more")
        message = f"these jobs wait for each other: {' for '.join([*shown, shown[0]])}"
        hint = "files and data make jobs wait, too: who reads one waits for who writes it"
        self.reading.report.error("cycle", message, self.jobs[cycle[0]].at("name"), hint=hint)
