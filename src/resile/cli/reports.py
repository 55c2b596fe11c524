"""Reports of a run for other programs: JUnit's XML (`--junit FILE`), and annotations of GitHub Actions.

A failed step is a failure, a parked one an error, one that did not run is skipped; a tolerated failure passes.
Output of steps may hold anything: XML gets only characters that it allows, and a command of GitHub stays on one line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from resile.cli.display import output
from resile.cli.display.steps import is_silent_end
from resile.errors import ResileError
from resile.model.nested import path_part, step_name

if TYPE_CHECKING:
    from resile.commands.documents.runs import RunDocument, RunJob
    from resile.errors import Diagnostic
    from resile.model.workflow import Workflow

ANNOTATIONS_MAX = 50
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def refuse_unwritable(path: str) -> None:
    """Refuse a report that could not be written, before anything runs."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        hint = "name a file in a folder that is there and that you may write to"
        raise ResileError("usage", f"--junit {path} can't be written", hint=hint)


def write_junit(document: RunDocument, messages: dict[int, str], path: str) -> None:
    """Write the report of a run as XML, whole or not at all."""
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write("\n".join(_junit_lines(document, messages)) + "\n")
        os.replace(part, path)
    except OSError as error:
        output.say(f"resile: --junit {path} could not be written: {error.strerror}")


def _junit_lines(document: RunDocument, messages: dict[int, str]) -> Iterator[str]:
    """The lines of the report: one suite, with a case for each job but an `end` that does nothing."""
    jobs = [job for job in document.jobs if not is_silent_end(job)]
    kinds = [_kind(job) for job in jobs]
    counts = f'tests="{len(kinds)}" failures="{kinds.count("failure")}" errors="{kinds.count("error")}"'
    counts += f' skipped="{kinds.count("skipped")}" time="{document.duration_seconds:.3f}"'
    name = _attribute(document.workflow)
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield f"<testsuites name={name} {counts}>"
    yield f'  <testsuite name={name} {counts} timestamp="{document.started_at[:19]}">'
    for job, kind in zip(jobs, kinds, strict=True):
        case = f"    <testcase name={_attribute(step_name(job.scope, job.step))} classname={name}"
        case += f' time="{job.seconds or 0.0:.3f}"'
        message = messages.get(job.id, "")
        if not kind:
            yield case + "/>"
            continue
        first = message.partition("\n")[0] or job.status
        code = f' type="exit {job.exit_code}"' if job.exit_code is not None and kind != "skipped" else ""
        yield f"{case}><{kind} message={_attribute(first)}{code}>{escape(_xml_text(message))}</{kind}></testcase>"
    yield "  </testsuite>"
    yield "</testsuites>"


def _kind(job: RunJob) -> str:
    """The element that says how a job ended; empty if it passed."""
    match job.status:
        case "completed":
            return ""
        case "failed":
            return "" if job.tolerated else "failure"
        case "pending_failed":
            return "error"
        case _:
            # It was skipped or canceled, or the run is interrupted or parked and has not reached it.
            return "skipped"


def _xml_text(text: str) -> str:
    """Replace each character that XML does not allow by U+FFFD."""
    return _NOT_IN_XML.sub("\ufffd", text)


def _attribute(text: str) -> str:
    return quoteattr(_xml_text(text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def annotation_lines(document: RunDocument, messages: dict[int, str], workflow: Workflow) -> Iterator[str]:
    """The workflow commands of GitHub Actions for the steps of a run that failed, were tolerated or recovered."""
    places = {path_part(step.name): step.origin for step in (*workflow.steps, workflow.end)}
    count = 0
    for job in document.jobs:
        level = _level(job)
        if not level or count == ANNOTATIONS_MAX:
            continue
        count += 1
        origin = places.get(_own_step(job, places))
        properties = {"file": (origin.file if origin is not None else "") or workflow.file}
        if origin is not None and origin.line:
            properties |= {"line": str(origin.line), "col": str(origin.column)}
        name = step_name(job.scope, job.step)
        word = output.status_word(job.status, recovered=job.recovered, tolerated=job.tolerated)
        properties["title"] = f"{name} {word}"
        message = messages.get(job.id) or f"it failed at first; `resile explain {document.run}` says what followed"
        yield _annotation(level, properties, message)


def finding_lines(diagnostics: Iterable[Diagnostic]) -> Iterator[str]:
    """The workflow commands of GitHub Actions for the errors and warnings in a workflow file."""
    shown = (found for found in diagnostics if found.severity in ("error", "warning"))
    for found in islice(shown, ANNOTATIONS_MAX):
        place = {"line": str(found.line), "col": str(found.column)} if found.line else {}
        message = f"{found.message}\n{found.hint}" if found.hint else found.message
        yield _annotation(found.severity, {"file": found.file, **place, "title": found.code}, message)


def _annotation(level: str, properties: dict[str, str], message: str) -> str:
    given = ",".join(f"{key}={_escape(value, in_property=True)}" for key, value in properties.items())
    return f"::{level} {given}::{_escape(message)}"


def _own_step(job: RunJob, names: Iterable[str]) -> str:
    """The top-level step of a job: for a job of an item, a child workflow or a handler, the step that has these."""
    if job.scope == "root":
        return path_part(job.step)
    around = (name for name in names if job.scope == name or job.scope.startswith((f"{name}[", f"{name}/", f"{name}.")))
    return max(around, key=len, default="")


def _level(job: RunJob) -> str:
    """The level of an annotation; empty for a step that passed without a repair."""
    if job.status == "failed":
        return "warning" if job.tolerated else "error"
    if job.status == "pending_failed":
        return "error"
    return "notice" if job.recovered else ""


def _escape(text: str, *, in_property: bool = False) -> str:
    """Escape a text for a command of GitHub: line breaks, and in a property also the separators."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if in_property else text
