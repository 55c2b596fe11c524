"""Hands a run to the servers of a database: this process compiles and stores the run, and one of the servers drives it.

    file or text --prepare--> a run with its first event, due at once; a refused run is not stored

The caller may name a run by a `key`. A second call with the same key, file and inputs gets the first run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from resile.commands.documents.answers import SubmittedRun
from resile.commands.load import CompileOptions, Loaded, check_compiled, require_workflow
from resile.commands.run import output_of, state_with_inputs
from resile.commands.service.compiled_texts import compile_alone
from resile.commands.start.call import Choice, Given, ResourceLimits, RunCall
from resile.commands.start.prepare import capacity_for, inputs_for, prepare, prepare_loaded
from resile.core.events import Options, RunStarted
from resile.dialects.compile import compile_text
from resile.dialects.reading.beside import confined_to
from resile.engine.clock import clock_of
from resile.engine.host.opening import refuse_blocks_here
from resile.engine.paths import claim_output, work_folder
from resile.engine.replay import current_definition, fold_log, row_of
from resile.engine.resources import CPUS_MAX, GPUS_MAX, MEMORY_BYTES_MAX
from resile.engine.session import caller, create
from resile.errors import Diagnostic, ResileError, WorkflowError
from resile.model import codec
from resile.model.codec import sha256_hex
from resile.model.folders import create_file, make_folder
from resile.store.errors import KeyInUse

if TYPE_CHECKING:
    from resile.commands.documents.answers import CheckedFile
    from resile.commands.store_handle import StoreHandle
    from resile.core.events import Capacity
    from resile.store.contract import RunRow, Store
    from resile.store.server_tables import SharedStore

FILES_MAX = 1_000
PATH_CHARACTERS_MAX = 1_000
# How many steps may run at once if neither the caller nor the file sets a number; the places limit them anyway.
PARALLEL_DEFAULT = 64
KEY_CHARACTERS_MAX = 255


class SubmitOptions(Struct, frozen=True, kw_only=True):
    """How to hand a run over: the user who does it, the run's priority, and the caller's name for the run."""

    by: str
    priority: int = 0
    key: str = ""


class TextCall(Struct, frozen=True, kw_only=True):
    """A workflow as text, with the other files that it uses; its steps run in `directory`.

    `runs_here` says whether steps may run on the server's machine.
    """

    text: str
    output: str
    file: str = "workflow.yaml"
    files: Mapping[str, str] = {}
    compile_options: CompileOptions = CompileOptions()
    inputs: Mapping[str, Any] = {}
    limits: ResourceLimits = ResourceLimits()
    labels: Mapping[str, str] = {}
    directory: str = ""
    choice: Choice = Choice()
    loops_max: int | None = None
    retry_max: int | None = None
    failure_routing: bool = True
    force: bool = False
    runs_here: bool = True


class Submitted(Struct, frozen=True):
    """The run that was handed over, or the earlier run with the same key."""

    run: int
    status: str
    is_new: bool


def submit(stores: StoreHandle, call: RunCall, *, priority: int, key: str) -> SubmittedRun:
    """Hand a run of a file to the servers of a store; its steps run in the current folder.

    A missing store is created only after the call has been validated.
    """
    before = stores.write() if stores.exists() else None
    folder = call.output or stores.default_output()
    call = msgspec.structs.replace(call, limits=_on_servers(call.limits), cluster_folder=folder)
    prepared = prepare(call, before)
    output = output_of(prepared[0].workflow, call.output, folder)
    claim_output(output)
    options = SubmitOptions(by=caller(), priority=priority, key=key)
    found = _hand_over(before or stores.create(), call, prepared, options, output, os.getcwd())
    return SubmittedRun(run=found.run, status=found.status)


def _on_servers(limits: ResourceLimits) -> ResourceLimits:
    """The limits of a run that servers drive: no limit by default, because each place and worker knows its own."""
    default = PARALLEL_DEFAULT if limits.parallel_default is None else limits.parallel_default
    return ResourceLimits(
        limits.max_parallel,
        default,
        CPUS_MAX if limits.cpus is None else limits.cpus,
        MEMORY_BYTES_MAX if limits.memory_bytes is None else limits.memory_bytes,
        GPUS_MAX if limits.gpus is None else limits.gpus,
    )


def submit_text(store: Store, call: TextCall, options: SubmitOptions) -> Submitted:
    """Hand a run of a text to the servers of the store; the run gets a folder for its files, in which its steps run.

    The function makes that folder first, because the text may name files in it, and removes it if the run is refused.
    """
    own = work_folder(call.output)
    directory = _directory_of(call) or own
    claim_output(call.output)
    try:
        make_folder(own, new=True)
        _write_files(own, call.files)
        loaded = _compile(call, own)
        asked = RunCall(
            path=call.file,
            inputs=Given(objects=call.inputs),
            limits=_on_servers(call.limits),
            labels=dict(call.labels),
            directory=directory,
            choice=call.choice,
            loops_max=call.loops_max,
            retry_max=call.retry_max,
            failure_routing=call.failure_routing,
            force=call.force,
            cluster_folder=call.output,
        )
        prepared = prepare_loaded(asked, loaded, store)
        if not call.runs_here:
            refuse_blocks_here(prepared[0].workflow)
        output = output_of(prepared[0].workflow, None, call.output)
        claim_output(output)
        found = _hand_over(store, asked, prepared, options, output, directory)
    except BaseException:
        shutil.rmtree(own, ignore_errors=True)
        raise
    if not found.is_new or (directory != own and not call.files):
        shutil.rmtree(own, ignore_errors=True)
    return found


def submit_again(
    store: SharedStore,
    number: int,
    inputs: Mapping[str, Any],
    limits: ResourceLimits,
    by: str,
    *,
    key: str = "",
    runs_here: bool = True,
) -> Submitted:
    """Hand the servers a new run with the definition of an earlier one; `inputs` replace the earlier inputs by name.

    The new run gets the labels, the priority and the folder of the earlier one. If a run has this `key`, return it
    instead.
    """
    row = row_of(store, number)
    made = store.run_with_key(key) if key else None
    if made is not None:
        return Submitted(made.id, made.status, False)
    state = state_with_inputs(store, row)
    if not runs_here:
        refuse_blocks_here(state.workflow)
    capacity = capacity_for(state.workflow, _on_servers(limits))
    values = inputs_for(state, Given(objects=inputs))
    clock = clock_of()
    first = RunStarted(clock.now(), capacity, values, state.options, clock.machine, state.source, by)
    known = store.server_tables().submission(number)
    fresh, _ = create(
        store,
        state.workflow,
        current_definition(state),
        first,
        output=row.output,
        directory=row.directory,
        labels=row.labels,
        key=key,
        submit_priority=known.priority if known else 0,
    )
    return Submitted(fresh.id, fresh.status, True)


def _directory_of(call: TextCall) -> str:
    """The folder that the caller names for the steps; refused if it does not exist."""
    if not call.directory:
        return ""
    if not os.path.isabs(call.directory) or "\0" in call.directory or not os.path.isdir(call.directory):
        message = f"`directory` is no folder of the server's machine: {call.directory[:200]!r}"
        raise ResileError("no-such-directory", message, hint="an absolute path, or leave it out")
    return call.directory


def check_file_names(names: Mapping[str, str] | tuple[str, ...]) -> None:
    """Refuse names of files that lead out of the run's own folder, or that no file can have."""
    if len(names) > FILES_MAX:
        raise ResileError("bad-file-name", f"`files` has more than {FILES_MAX} files")
    for name in names:
        parts = name.split("/")
        is_plain = all(part not in ("", ".", "..") and part.isprintable() for part in parts)
        if not is_plain or len(name) > PATH_CHARACTERS_MAX or any(len(os.fsencode(part)) > 255 for part in parts):
            message = f"{name[:80]!r} can't be the name of a file of a run"
            raise ResileError("bad-file-name", message, hint="a path below the run's folder, such as lib/child.yaml")


def _write_files(folder: str, files: Mapping[str, str]) -> None:
    """Write the files that a text uses into the folder."""
    check_file_names(files)
    for name, text in files.items():
        path = os.path.join(folder, name)
        try:
            make_folder(os.path.dirname(path))
            with create_file(path, os.O_WRONLY | os.O_EXCL) as file:
                file.write(text.encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise ResileError("bad-file-name", f"{name[:80]!r} can't be written: {error.strerror}") from error


def _compile(call: TextCall, folder: str) -> Loaded:
    """Compile the text; files that it names are in its own folder."""
    check_file_names((call.file,))
    options = call.compile_options
    if call.file.endswith(".py") or options.dialect == "python":
        finding = Diagnostic(
            severity="error",
            code="dialect",
            message="a workflow in Python is not compiled by a server: that would run its code there",
            file=call.file,
            hint="`resile run` runs it",
        )
        raise WorkflowError(finding.code, finding.message, hint=finding.hint, diagnostics=[finding])
    source = source_of(call.text, call.files)
    if not call.files:
        return compile_alone(call.text, call.file, options, folder, source)
    result = compile_text(call.text, file=call.file, folder=folder, dialect=options.dialect, profile=options.profile)
    workflow, findings = require_workflow(result)
    warnings = tuple(found for found in findings if found.severity == "warning")
    return Loaded(workflow, codec.encode(workflow), warnings, source=source)


def check_text(text: str, file: str, files: Mapping[str, str], options: CompileOptions, folder: str) -> CheckedFile:
    """Compile and lint a text with the files that it uses, after writing these to this folder; nothing runs.

    The front end reads no file outside of the folder, because the caller may have no right to read it.
    """
    check_file_names((file,))
    _write_files(folder, files)
    with confined_to(folder):
        result = compile_text(text, file=file, folder=folder, dialect=options.dialect, profile=options.profile)
        return check_compiled(file, result)


def source_of(text: str, files: Mapping[str, str]) -> str:
    """The hash of a text and of the files that it uses."""
    data = text.encode("utf-8", "surrogateescape")
    if files:
        data += msgspec.json.encode(sorted(files.items()))
    return sha256_hex(data)


def _hand_over(
    store: Store,
    call: RunCall,
    prepared: tuple[Loaded, dict[str, Any], Capacity],
    options: SubmitOptions,
    output: str,
    directory: str,
) -> Submitted:
    """Store a run that servers drive from now on."""
    loaded, inputs, capacity = prepared
    if len(options.key) > KEY_CHARACTERS_MAX or not options.key.isprintable():
        raise ResileError("bad-key", f"a key has at most {KEY_CHARACTERS_MAX} printable characters")
    known = store.run_with_key(options.key) if options.key else None
    if known is not None:
        return _known_run(store, known, loaded.source, inputs)
    clock = clock_of()
    made = Options(loops_max=call.loops_max, retry_max=call.retry_max, failure_routing=call.failure_routing)
    first = RunStarted(clock.now(), capacity, inputs, made, clock.machine, loaded.source, options.by, loaded.learned)
    try:
        row, _ = create(
            store,
            loaded.workflow,
            loaded.definition_of_run,
            first,
            output=output,
            directory=directory,
            labels=call.labels,
            key=options.key,
            submit_priority=options.priority,
        )
    except KeyInUse:
        # Another caller was faster with the same key.
        known = store.run_with_key(options.key)
        assert known is not None
        return _known_run(store, known, loaded.source, inputs)
    return Submitted(row.id, row.status, True)


def _known_run(store: Store, row: RunRow, source: str, inputs: Mapping[str, Any]) -> Submitted:
    """The run that has the key; refused if that run has another file or other inputs."""
    state = fold_log(store, row)
    first = row.summary.get("first") or {}
    if state.phase == "new":
        same = (first.get("source"), first.get("inputs", {})) == (source, inputs)
    else:
        same = (state.source, state.inputs) == (source, inputs)
    if not same:
        message = f"run {row.id} has the key, with another file or other inputs"
        raise ResileError("key-in-use", message, hint="use a new key for another run")
    return Submitted(row.id, row.status, False)
