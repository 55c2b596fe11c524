"""`worker`: run steps that a server gives, until a signal comes or there is nothing to do for long."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from resile.cli.parse import Call
from resile.errors import ResileError

if TYPE_CHECKING:
    from resile.executors.worker.worker import Worker, WorkerSettings

FOLDERS_MAX = 1000


def work(call: Call) -> int:
    """Run steps that a server gives."""
    from resile.commands.remote.connection import token_in, token_of_environment
    from resile.engine.env_files import TOKEN_VARIABLE
    from resile.engine.resources import measure, visible_gpus
    from resile.executors.worker.messages import LABEL_PATTERN, NAME_PATTERN
    from resile.executors.worker.worker import WorkerSettings

    if not call.server:
        raise ResileError("bad-call", "a worker needs the address of its server", hint="--server http://HOST:8700")
    path = call.text("token-file")
    token = token_in(path) if path else token_of_environment()
    # Steps do not get it.
    os.environ.pop(TOKEN_VARIABLE, None)
    name = call.text("name") or re.sub(r"[^A-Za-z0-9._-]", "_", os.uname().nodename)[:64]
    if not re.fullmatch(NAME_PATTERN, name):
        raise ResileError("bad-call", f"--name {name!r}: letters, digits, dots, dashes, at most 64")
    for label in call.texts("label"):
        if not re.fullmatch(LABEL_PATTERN, label):
            raise ResileError("bad-call", f"--label {label!r}: letters, digits, . _ : / = -, at most 64")
    machine = measure(None, None, call.size("memory"), call.whole("gpus"))
    names = visible_gpus(os.environ)
    if len(names) < machine.gpus:
        names = [str(number) for number in range(machine.gpus)]
    slots = call.whole("slots")
    settings = WorkerSettings(
        server=call.server,
        token=token,
        name=name,
        slots=machine.parallel if slots is None else slots,
        labels=tuple(dict.fromkeys(call.texts("label"))),
        cpus=max(machine.cpus, float(slots or 0)),
        memory_bytes=machine.memory_bytes,
        gpus=tuple(names[: machine.gpus]),
        directory=call.text("directory") or "",
        max_idle_seconds=call.duration("max-idle"),
        shared_output=call.text("shared-output") or "",
    )
    return _open(settings).run()


def _open(settings: WorkerSettings) -> Worker:
    """A worker in its folder; without one that was named, in the first of its name that no other worker uses."""
    from msgspec.structs import replace

    from resile.executors.worker.worker import Worker
    from resile.store.open import default_path

    env = dict(os.environb)
    if settings.directory:
        return Worker(settings, env)
    base = os.path.join(os.path.dirname(default_path()), "workers", settings.name)
    for number in range(1, FOLDERS_MAX):
        folder = base if number == 1 else f"{base}-{number}"
        try:
            return Worker(replace(settings, directory=folder), env)
        except ResileError as error:
            if error.code != "folder-in-use":
                raise
    raise ResileError("folder-in-use", "too many workers of this name run here", where=base)
