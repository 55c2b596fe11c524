"""Records what the results of an attempt depend on beyond its definition, for `rerun --changed` and `run --cached`.

    launch   Recorder.begin: how the files look that the attempt reads
    end      Recorder.end: their digests, beside the loop; a file that looks otherwise by then changed meanwhile

The command itself is not recorded: the log has the definition and the inputs. Of the variables that texts name, the
fingerprint has only a hash, made after secrets are redacted. So a new token is no change, and the hash reveals no
secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from resile.core.state import ROOT
from resile.engine.fingerprints.digests import Digests, look_of
from resile.engine.secrets import Hidden, redact
from resile.languages.contract import render_text
from resile.languages.waiting import waiting
from resile.model.codec import sha256_hex
from resile.model.failure import CHANGING, Fingerprint
from resile.model.workflow import FanOut, Function, Python, Query, Shell, Step, Validate

if TYPE_CHECKING:
    from resile.core.state import Job, State
    from resile.languages.contract import Visible

_VARIABLE = re.compile(r"""\benv(?:\.|\[['"])([A-Za-z_][A-Za-z0-9_]*)""")
_REFERENCE = re.compile(r"[$%{]\{|\{%")


class ValueFinder(Protocol):
    """Finds the values of a run."""

    def of(self, job: Job) -> Visible:
        """The names that the texts of a job can use."""


class Launcher(Protocol):
    """The part of the engine that launches attempts, as the recorder sees it."""

    state: State

    @property
    def values(self) -> ValueFinder:
        """The values of the run."""

    def directory_of(self, job: Job, step: Step) -> str:
        """The directory in which a step runs."""


class Recorder:
    """Makes the fingerprints of one run's attempts."""

    def __init__(self, performer: Launcher, output: str) -> None:
        self._performer = performer
        self._digests = Digests(output)
        # By attempt: how each path looked when it was launched.
        self._looks: dict[tuple[int, int], dict[str, Any]] = {}

    def begin(self, job: Job, attempt: int, step: Step) -> None:
        """Note how the files look that an attempt will read; called before it starts."""
        self._looks[job.id, attempt] = {path: look_of(path) for path in self._reads(job, step)}

    def forget(self, job: int, attempt: int) -> None:
        """Forget an attempt that failed or never starts."""
        self._looks.pop((job, attempt), None)

    def end(self, job: Job, attempt: int, step: Step, env: Mapping[str, str], hidden: Hidden) -> Fingerprint | None:
        """The fingerprint of an attempt that succeeded; None if its results depend on its definition alone."""
        before = self._looks.pop((job.id, attempt), None)
        visible = self._performer.values.of(job)
        outputs: tuple[str, ...] = ()
        if job.scope != ROOT or any(map(_REFERENCE.search, (step.working_dir, *step.outputs))):
            directory = self._performer.directory_of(job, step)
            outputs = tuple(os.path.abspath(os.path.join(directory, render_text(one, visible))) for one in step.outputs)
        variables = variables_in(step, self._performer.state.workflow_of(job.scope).env)
        # If another engine launched the attempt, its files may have changed since: mark all of them as changing.
        reads = dict.fromkeys(self._reads(job, step), CHANGING) if before is None else {}
        if before:
            with waiting():
                found = self._digests.of(before)
                reads = {path: found[path] if look_of(path) == look else CHANGING for path, look in before.items()}
        made = Fingerprint(reads, outputs, hash_variables(variables, env, hidden) if variables else "")
        return made if made.reads or made.outputs or made.env else None

    def _reads(self, job: Job, step: Step) -> list[str]:
        """The paths that an attempt reads."""
        performer = self._performer
        visible = performer.values.of(job)
        folder = performer.state.workflow_of(job.scope).folder
        return paths_read(step, lambda text: render_text(text, visible), folder, performer.directory_of(job, step))


def paths_read(step: Step, render: Callable[[str], str], folder: str, directory: str) -> list[str]:
    """The files and folders that a step reads: those that it declares, and those that its action names."""
    found = [os.path.join(directory, render(path)) for path in step.reads]
    match step.action:
        case Python(file=file) | Query(file=file) if file:
            found.append(os.path.join(folder, render(file)))
        case FanOut(source=source) if source.path:
            # The program looks for the file in both folders.
            found += (os.path.join(place, render(source.path)) for place in (folder, directory))
    return list(dict.fromkeys(map(os.path.abspath, found)))


def variables_in(step: Step, env: Mapping[str, str]) -> list[str]:
    """The variables of the environment that texts and code of a step name, or the `env` of its workflow, sorted."""
    action = step.action
    texts: Iterable[str] = (step.working_dir, *step.env.values(), *env.values())
    if isinstance(action, Shell | Validate):
        texts = (action.command, action.stdin if isinstance(action, Shell) else "", *texts)
    elif not isinstance(action, Function):
        texts = (*texts_in(msgspec.to_builtins((action, step.args))), *texts)
    code = (step.when, step.arcs, step.on_success, step.transform, step.checks, step.cases, step.effects)
    if any(code):
        texts = (*texts, *texts_in(msgspec.to_builtins(code)))
    return variables_named(texts)


def variables_named(texts: Iterable[str]) -> list[str]:
    """The variables of the environment that texts name, sorted."""
    return sorted({name for text in texts if "env" in text for name in _VARIABLE.findall(text)})


def texts_in(data: Any) -> Iterator[str]:
    """All texts in data."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for value in data.values():
            yield from texts_in(value)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from texts_in(value)


def hash_variables(names: Iterable[str], env: Mapping[str, str], hidden: Hidden) -> str:
    """A hash of the values of variables, without secrets."""
    values = {name: redact(env[name], hidden) if name in env else None for name in names}
    return sha256_hex(msgspec.json.encode({name: repr(value) for name, value in values.items()}))
