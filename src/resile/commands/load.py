"""Compiles a file to a definition that can run, and checks many files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from resile.errors import Diagnostic, ResileError, WorkflowError
from resile.model import codec
from resile.model.codec import sha256_hex
from resile.model.limits import FILE_BYTES_MAX
from resile.model.nested import steps_with_inner_steps, steps_with_inner_workflows, steps_within, workflows_within
from resile.model.workflow import Child, FanOut, Step, Workflow
from resile.version import __version__

if TYPE_CHECKING:
    from resile.commands.documents.answers import CheckedFile, CheckReport
    from resile.dialects.compile import Compiled
    from resile.store.contract import Store


STDIN = "-"
STDIN_NAME = "<stdin>"


class CompileOptions(msgspec.Struct, frozen=True):
    """The dialect of a file (detected from its content where empty), and the profile to add."""

    dialect: str = ""
    profile: str = ""


class Loaded(msgspec.Struct, frozen=True):
    """A workflow that can run, and its canonical JSON.

    `warnings` are those of `check`. `taken_for` says which system the file was taken for, if that is not clear.
    `source` is the hash of the file. The store may cache the definition under `key`, if it is not empty. `learned` is
    the memory of steps that ask for what they needed in earlier runs.
    If `is_changed`, the workflow is no longer that of the file: the call leaves steps out, its folder decides about
    worktrees, or it has learned memory.
    """

    workflow: Workflow
    definition: bytes
    warnings: tuple[Diagnostic, ...] = ()
    taken_for: str = ""
    source: str = ""
    key: str = ""
    is_changed: bool = False
    learned: dict[str, int] = {}

    @property
    def definition_of_run(self) -> bytes:
        """The canonical JSON of the workflow that the run follows."""
        return codec.encode(self.workflow) if self.is_changed else self.definition


def load(path: str, store: Store | None, options: CompileOptions = CompileOptions()) -> Loaded:
    """The workflow in a file; the store caches the definition of an unchanged file that has no warnings."""
    source, key = _hashes(path, options)
    known = store.cached_definition(key) if store is not None and key else None
    if known is not None:
        return Loaded(codec.decode(known), known, source=source, key=key)
    loaded = _require_loaded(compile_any(path, options), source, key)
    if store is not None:
        remember(store, loaded)
    return loaded


def load_text(data: bytes, options: CompileOptions) -> Loaded:
    """The workflow that was on standard input."""
    return _require_loaded(_compile_stdin(data, options), sha256_hex(data), "")


def _require_loaded(result: Compiled, source: str, key: str) -> Loaded:
    """Return a compiled workflow if it can run; else raise a WorkflowError."""
    workflow, findings = require_workflow(result)
    warnings = tuple(finding for finding in findings if finding.severity == "warning")
    taken_for = "" if result.is_clear else _taken_for(workflow.file, result)
    if warnings or taken_for or not _stands_alone(workflow):
        key = ""
    return Loaded(workflow, codec.encode(workflow), warnings, taken_for, source, key)


def remember(store: Store, loaded: Loaded) -> None:
    """Cache the definition of a file, if its key allows that."""
    if loaded.key:
        store.cache_definition(loaded.key, loaded.definition)


def _taken_for(file: str, result: Compiled) -> str:
    """A text that says which system a file was taken for, why, and how to choose another."""
    return (
        f"{file} is taken for a {result.dialect.capitalize()} file, because {result.why}; a native file starts with"
        " `resile: 1`, and --dialect says whose file it is"
    )


def _stands_alone(workflow: Workflow) -> bool:
    """Does the definition depend on this file alone? Files of other dialects may include other files."""
    found = steps_within(steps_with_inner_workflows((*workflow.steps, workflow.end)))
    return workflow.dialect == "native" and not any(_reads_file(step) for step in found)


def _reads_file(step: Step) -> bool:
    """Was another file read to compile a step: a child workflow, or an items file?"""
    source = step.action.source if isinstance(step.action, FanOut) else None
    return isinstance(step.action, Child) or (source is not None and bool(source.path or source.command))


def compile_workflow(path: str, options: CompileOptions = CompileOptions()) -> Workflow:
    """Compile a file; raises a WorkflowError with all diagnostics if it is wrong."""
    return require_workflow(compile_any(path, options))[0]


def compile_any(path: str, options: CompileOptions) -> Compiled:
    """Compile a file: a Python file by loading it, any other with its front end; `-` is standard input."""
    if path == STDIN:
        return _compile_stdin(read_stdin(), options)
    if path.endswith(".py") and options.dialect in ("", "python"):
        from resile.dialects.python.compile import compile_module

        return compile_module(path)
    from resile.dialects.compile import compile_file

    return compile_file(path, dialect=options.dialect, profile=options.profile)


def read_stdin() -> bytes:
    """The bytes of standard input, at most one more than a file may have."""
    try:
        data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ResileError("file", f"standard input can't be read: {error.strerror}") from error
    if not data:
        raise ResileError("file", "there is no workflow on standard input", hint="resile run - < FILE")
    return data


def _compile_stdin(data: bytes, options: CompileOptions) -> Compiled:
    """Compile the workflow on standard input; files that it names are relative to the current folder."""
    from resile.dialects.compile import compile_text

    return compile_text(data, file=STDIN_NAME, folder=os.getcwd(), dialect=options.dialect, profile=options.profile)


def require_workflow(result: Compiled) -> tuple[Workflow, list[Diagnostic]]:
    """The compiled workflow and its findings; raises a WorkflowError with all diagnostics if it can't run."""
    findings = _findings_of(result)
    errors = [finding for finding in findings if finding.severity == "error"]
    if result.workflow is None or errors:
        first = errors[0]
        count = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise WorkflowError(first.code, first.message + count, where=first.where, hint=first.hint, diagnostics=findings)
    return result.workflow, findings


def _findings_of(result: Compiled) -> list[Diagnostic]:
    """The findings of the front end, of the expressions, of secrets in command lines and of items in one folder."""
    from resile.commands.check_expressions import check_code

    workflow = result.workflow
    if workflow is None:
        return list(result.diagnostics)
    found = [*result.diagnostics, *check_code(workflow), *shown_secrets(workflow), *_shared_folders(workflow)]
    if workflow.dialect not in ("native", "python"):
        from resile.commands.files.check_tolerated import check_tolerated

        found += check_tolerated(workflow, found)
    return found


def _shared_folders(workflow: Workflow) -> list[Diagnostic]:
    """The warnings for items that share one checkout; most workflows have no map."""
    if not any(steps_with_inner_steps(flow.steps) for flow in workflows_within(workflow)):
        return []
    from resile.commands.files.check_maps import check_maps

    return check_maps(workflow)


def shown_secrets(workflow: Workflow) -> list[Diagnostic]:
    """The warnings for secrets in command lines; most workflows have no secrets."""
    if not any(flow.secrets for flow in workflows_within(workflow)):
        return []
    from resile.commands.check_secrets import check_secrets

    return check_secrets(workflow)


def _hashes(path: str, options: CompileOptions) -> tuple[str, str]:
    """The hash of a file's bytes, and the cache key of its definition: version, path, folder, bytes and options."""
    data = read_source(path)
    if data is None:
        return "", ""
    name = f"{__version__}\0{path}\0{os.path.abspath(path)}\0{options.dialect}\0{options.profile}\0"
    name += os.environ.get("RESILE_AGENT", "") + "\0"
    return sha256_hex(data), sha256_hex(name.encode("utf-8", "surrogateescape") + data)


def read_source(path: str) -> bytes | None:
    """The bytes of a workflow file; None if it is no file, too large or can't be read."""
    try:
        if path == STDIN or os.path.getsize(path) > FILE_BYTES_MAX:
            return None
        with open(path, "rb") as file:
            return file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError):
        return None


def check(paths: Sequence[str], options: CompileOptions = CompileOptions()) -> CheckReport:
    """Compile and lint every file; nothing runs."""
    from resile.commands.documents.answers import CheckReport

    return CheckReport(files=[check_compiled(path, compile_any(path, options)) for path in paths])


def check_compiled(path: str, result: Compiled) -> CheckedFile:
    """The findings of the compiler, and of the checks of expressions, secrets and maps."""
    from resile.commands.documents.answers import CheckedFile

    findings = _findings_of(result)
    ok = result.workflow is not None and all(finding.severity != "error" for finding in findings)
    steps = len(result.workflow.steps) if result.workflow is not None else 0
    jobs = steps + 1 if ok else 0
    return CheckedFile(path, result.dialect, result.why, ok, steps, jobs, findings)
