"""From a Python file to the model: load the file, find the one workflow that it builds, and let it compile itself.

The class of such a workflow belongs to the Python API, above this layer. The front end knows it by `BuildsWorkflow`.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from typing import Protocol, runtime_checkable

from msgspec.structs import replace

from resile.dialects.compile import Compiled
from resile.dialects.formats.nodes import Mark
from resile.dialects.reading.diagnostics import Diagnostics
from resile.languages.python.modules import load_file


@runtime_checkable
class BuildsWorkflow(Protocol):
    """An object in a Python file that builds a workflow."""

    file: str

    def compile_with_findings(self, file: str = "") -> Compiled:
        """Compile the workflow; findings name the path `file`, or the object's own file if it is empty."""


def compile_module(path: str) -> Compiled:
    """Compile the one workflow that a Python file builds. Loading the file runs it, as importing it would."""
    report = Diagnostics(path)
    why = "its name ends in .py"
    flow = _load_workflow(path, report)
    if flow is None:
        return Compiled(None, report.findings(), "python", why)
    is_own = os.path.abspath(flow.file) == os.path.abspath(path)
    return replace(flow.compile_with_findings(path if is_own else ""), why=why)


def _load_workflow(path: str, report: Diagnostics) -> BuildsWorkflow | None:
    """Load a file and find its one workflow; None after a report."""
    if not os.path.isfile(path):
        report.error("file", f"there is no file `{path}`")
        return None
    file = os.path.abspath(path)
    try:
        # Redirect the file's prints: stdout may be reserved for a command's JSON.
        with redirect_stdout(sys.stderr):
            module = load_file(file)
    except SyntaxError as error:
        report.error("python", f"{type(error).__name__}: {error.msg}", Mark(error.lineno or 1, error.offset or 1))
        return None
    except (Exception, SystemExit) as error:
        report.error("python", f"{type(error).__name__}: {error}", Mark(_line_in(file, error), 1))
        return None
    flows = {
        id(value): (name, value)
        for name, value in vars(module).items()
        if isinstance(value, BuildsWorkflow) and not isinstance(value, type)
    }
    if len(flows) == 1:
        return next(iter(flows.values()))[1]
    found = ", ".join(name for name, _ in flows.values()) or "none"
    hint = "a file that is run has one; others can be run by `resile.run` in a program"
    report.error("python", f"the file must build one Workflow, and keeps {len(flows)}: {found}", Mark(1, 1), hint=hint)
    return None


def _line_in(file: str, error: BaseException) -> int:
    """The last line of this file in the traceback of an exception."""
    line, trace = 1, error.__traceback__
    while trace is not None:
        if os.path.abspath(trace.tb_frame.f_code.co_filename) == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
