"""Jobs and files after expansion: one for each combination of their parameters.

    jobs:  [{name: "work_{i}", parameters: {i: "1:3"}, ...}]   ->  work_1, work_2, work_3

Expansions of one entry with the same name become one job, which waits for all their dependencies: Torc's fan-in. They
must agree in everything else.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from resile.dialects.formats.nodes import Mapping, Node, Scalar, describe
from resile.dialects.native.nodes import word
from resile.dialects.reading.context import Reading
from resile.dialects.reading.values import name_problem
from resile.dialects.torc.keys import FILE, JOB, USER_DATA
from resile.dialects.torc.parameters import Combinations, Filler, read_combinations
from resile.dialects.torc.values import is_free_name, read_list, read_named, texts
from resile.errors import shorten
from resile.model.limits import STEPS_MAX

LISTS = tuple(name for name, key in JOB.keys.items() if key.read is texts and name != "use_parameters")
_TELL_APART = "put a parameter into the name that tells them apart"
_TEXTS = ("command", "invocation_script", "resource_requirements", "scheduler")


class Job(Struct):
    """One job: its texts with parameters filled in, and the names that it lists, each with its node."""

    name: str
    node: Mapping
    fields: dict[str, Any]
    texts: dict[str, str]
    lists: dict[str, dict[str, Scalar]]

    def at(self, key: str) -> Scalar:
        """The node of one of its texts."""
        node: Scalar = self.fields[key]
        return node


class Datum(Struct, frozen=True):
    """A piece of user data: its JSON, or None if a job produces it, and its id: its place in the file, from 1."""

    node: Scalar
    text: str | None
    number: int = 0
    is_ephemeral: bool = False


def read_jobs(reading: Reading, node: Node | None, shared: dict[str, Scalar]) -> dict[str, Job]:
    """Read all jobs by name, in the order of the file."""
    jobs: dict[str, Job] = {}
    total = 0
    for entry, fields in read_list(reading, node, JOB, "name", "command"):
        combinations = read_combinations(reading, entry, fields, shared)
        if combinations is None:
            continue
        total += len(combinations.rows)
        if total > STEPS_MAX:
            reading.report.error("limit", f"the file has more than {STEPS_MAX} jobs", entry)
            break
        if not fields["command"].text.strip():
            reading.report.error("value", "the command is empty", fields["command"])
        _expand(reading, jobs, entry, fields, combinations)
    return jobs


def _expand(
    reading: Reading, jobs: dict[str, Job], entry: Mapping, fields: dict[str, Any], combinations: Combinations
) -> None:
    """Add the jobs of one entry."""
    filler = Filler(reading, combinations)
    name = filler.template_of(fields["name"])
    filled = {key: filler.template_of(fields[key]) for key in _TEXTS if key in fields}
    lists = {key: [filler.template_of(node) for node in fields[key]] for key in LISTS if key in fields}
    merged: dict[str, int] = {}
    for row in combinations.rows:
        job = Job(
            name.fill(row),
            entry,
            fields,
            {key: template.fill(row) for key, template in filled.items()},
            {
                key: {one.fill(row, escape=key.endswith("regexes")): one.node for one in found}
                for key, found in lists.items()
            },
        )
        first = jobs.get(job.name)
        if first is None:
            if _check_name(reading, job):
                jobs[job.name] = job
        elif first.node is not entry:
            place = f"{first.at('name').line}:{first.at('name').column}"
            message = f"the job `{shorten(job.name)}` is here twice; the first is at {place}"
            reading.report.error("duplicate", message, fields["name"])
            return
        elif not _merge(reading, first, job):
            return
        else:
            merged[job.name] = merged.get(job.name, 1) + 1
    if merged:
        _report_merging(reading, fields["name"], merged, len(combinations.rows))


def _check_name(reading: Reading, job: Job) -> bool:
    """Report a name that is invalid for a job; is it valid?"""
    problem = "is the name of what runs last" if job.name == "end" else name_problem(job.name)
    if problem:
        reading.report.error("name", f"the job name `{shorten(job.name)}` {problem}", job.at("name"))
    return not problem


def _merge(reading: Reading, first: Job, other: Job) -> bool:
    """Add the lists of another expansion of the same name; return False after reporting different texts."""
    different = next((key for key in first.texts if first.texts[key] != other.texts[key]), "")
    if different:
        message = f"two expansions are called `{shorten(first.name)}` and differ in `{different}`"
        reading.report.error("duplicate", message, first.at("name"), hint=_TELL_APART)
        return False
    for key, names in other.lists.items():
        first.lists[key].update(names)
    return True


def _report_merging(reading: Reading, name: Scalar, merged: dict[str, int], total: int) -> None:
    """Report that expansions became one job."""
    count = total - sum(merged.values()) + len(merged)
    shown = next(iter(merged))
    what = f"are one job, `{shorten(shown)}`" if count == 1 else f"are {count} jobs, such as `{shorten(shown)}`"
    message = f"{total} expansions {what}: those of one name are one job, which waits for all that they wait for"
    hint = "without parameters, `depends_on_regexes` waits for all jobs whose names match"
    reading.report.notice("merged", message, name, hint=hint)


def read_files(reading: Reading, node: Node | None, shared: dict[str, Scalar]) -> dict[str, str]:
    """Read the path of each file, by name."""
    files: dict[str, str] = {}
    for entry, fields in read_list(reading, node, FILE, "name", "path"):
        combinations = read_combinations(reading, entry, fields, shared)
        if combinations is None:
            continue
        filler = Filler(reading, combinations)
        name, path = filler.template_of(fields["name"]), filler.template_of(fields["path"])
        _check_path(reading, fields["path"])
        own: set[str] = set()
        for row in combinations.rows:
            called, where = name.fill(row), path.fill(row)
            if called in own:
                if files[called] != where:
                    message = f"two expansions are called `{shorten(called)}` and have different paths"
                    reading.report.error("duplicate", message, name.node, hint=_TELL_APART)
            elif is_free_name(reading, files, word(called, name.node), "the file"):
                own.add(called)
                files[called] = where
        if len(files) > STEPS_MAX:
            reading.report.error("limit", f"the file has more than {STEPS_MAX} files", entry)
            break
    return files


def _check_path(reading: Reading, path: Scalar) -> None:
    """Report an empty path, and warn of one that a shell would expand."""
    if not path.text.strip():
        reading.report.error("value", "the path is empty", path)
    elif path.text.startswith("~") or "$" in path.text:
        message = f"the path {describe(path)} is taken as it stands: neither `~` nor variables are filled in"
        reading.report.warning("path", message, path)


def read_user_data(reading: Reading, node: Node | None) -> dict[str, Datum]:
    """Read the user data by name."""
    import msgspec

    result: dict[str, Datum] = {}
    for name, (_, fields) in read_named(reading, node, USER_DATA, "the user data").items():
        text = msgspec.json.encode(fields["data"]).decode() if "data" in fields else None
        result[name] = Datum(fields["name"], text, len(result) + 1, fields.get("is_ephemeral", False))
    return result
