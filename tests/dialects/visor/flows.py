"""Visor files whose steps leave a trace: which ran, in which order, and what came of it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from resile.dialects.formats.nodes import Mapping
from resile.dialects.formats.yaml import parse
from resile.dialects.reading.context import Source
from resile.dialects.reading.diagnostics import Diagnostics
from resile.dialects.visor.compile import compile_visor
from resile.model.codec import decode, encode
from resile.model.workflow import Step, Workflow
from tests.runs.ladder.flows import Flows, Ran

_STEP = r"(?!routing|memory|fail_if|env|max_par)([\w-]+)(?:\.(\d+))?(?: < ([\w|, -]+))?(?:: (.*))?"


class VisorFlows(Flows):
    """Runs Visor files in one folder, each with a trace of its own."""

    def run(self, text: str, code: int = 0, *words: str) -> Ran:
        """Run a file one step at a time; it must exit with this code."""
        trace = self.folder / "trace"
        trace.unlink(missing_ok=True)
        self.program.write(text)
        document = self.program.json("run", "flow.yaml", "--max-parallel", "1", *words, code=code)
        return self.ran(document)

    def ran(self, document: dict[str, object]) -> Ran:
        """What came of a run that has this document."""
        trace = self.folder / "trace"
        lines = self.program.call("events", "ls", str(document["run"]), "--json", code=0).stdout.splitlines()
        order = trace.read_text().split("\n")[:-1] if trace.exists() else []
        return Ran(order, document, [msgspec.json.decode(line) for line in lines])

    def refused(self, text: str) -> list[str]:
        """The errors of a file that must not run."""
        self.program.write(text)
        document = self.program.json("run", "flow.yaml", code=2)
        return [finding["message"] for finding in document["diagnostics"] if finding["severity"] == "error"]


def flow(text: str) -> str:
    """The file that a short text stands for: one step in a line, `name.times < needs: keys`."""
    lines = ['version: "1.0"']
    steps = ["steps:"]
    for line in text.strip().split("\n"):
        step = re.fullmatch(_STEP, line)
        if step is None:
            lines.append(line)
            continue
        name, times, needs, keys = step.groups()
        given = []
        if not re.match(r"(exec|type):", keys or ""):
            given.append(f"type: command, exec: ./step {name} {times or 0}")
        elif keys.startswith("exec"):
            given.append("type: command")
        given += [f'depends_on: ["{needs.replace(", ", chr(34) + ", " + chr(34))}"]'] if needs else []
        steps.append(f"  {name}: {{{', '.join([*given, *([keys] if keys else [])])}}}")
    return "\n".join([*lines, *steps]) + "\n"


def compiled(text: str | bytes, file: str = "flow.yaml", folder: str = ".") -> tuple[Workflow | None, list[str]]:
    """The workflow in a text, and the errors, warnings and notices about it."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    report = Diagnostics(file)
    root = parse(data, report)
    workflow = None
    if isinstance(root, Mapping):
        workflow = compile_visor(Source(file, data, folder), root, report)
    if workflow is not None:
        assert decode(encode(workflow)) == workflow
    return workflow, [f"{finding.severity}: {finding.message}" for finding in report.findings()]


def workflow_of(text: str, folder: Path | None = None) -> Workflow:
    """The workflow in a text that has no findings but notices and warnings."""
    workflow, findings = compiled(text, folder=str(folder or "."))
    assert [finding for finding in findings if finding.startswith("error")] == []
    assert workflow is not None
    return workflow


def step_with(keys: str, more: str = "") -> Step:
    """The step `s` with these keys, beside a step `a`, a remedy `f` and an input `i`."""
    text = (
        f"version: '1'\ninputs: [{{name: i, default: x}}]\n{more}\nsteps:\n  a: {{type: noop}}\n"
        f"  f: {{type: noop}}\n  s: {{{keys}}}\n"
    )
    return next(step for step in workflow_of(text).steps if step.name == "s")


def errors_of(text: str, folder: Path | None = None) -> list[str]:
    """The errors in a text."""
    _, findings = compiled(text, folder=str(folder or "."))
    return [finding.removeprefix("error: ") for finding in findings if finding.startswith("error")]
