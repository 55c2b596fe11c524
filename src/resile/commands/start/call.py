"""What a caller asks for when it starts a run: the file, inputs, steps, resources and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from resile.commands.load import CompileOptions
from resile.model.workflow import Workflow


class ResourceLimits(Struct, frozen=True):
    """The resources that a caller lets a run use; None means all of the machine's.

    `parallel_default` is used where neither the caller nor the workflow says how many steps run at once.
    """

    max_parallel: int | None = None
    parallel_default: int | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: int | None = None


class Given(Struct, frozen=True):
    """Inputs as a caller gives them: pairs `name=value`, pairs `name=path`, files with several, and plain values.

    Of two values for one input, a pair wins over a file, and the later one over the earlier one.
    """

    pairs: Sequence[str] = ()
    paths: Sequence[str] = ()
    files: Sequence[str] = ()
    objects: Mapping[str, Any] = {}

    def __bool__(self) -> bool:
        """Is any input given?"""
        return bool(self.pairs or self.paths or self.files or self.objects)


class Choice(Struct, frozen=True):
    """The steps that a caller wants: `first` and what follows them, only some, or all but some."""

    first: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Does the caller choose at all?"""
        return bool(self.first or self.only or self.skip)


class RunCall(Struct):
    """The arguments of `resile run`; with a compiled `workflow` the file is not read.

    Steps run in `directory`; in the current folder if it is empty. With `cached` steps that did not change since the
    last completed run of the workflow are taken over from it. `executor` is a file that says where attempts run, or
    `local`: on this machine. With a `cluster_folder` a workflow that schedules nodes itself runs on Slurm, if it is
    there, with this folder for output.
    """

    path: str
    inputs: Given = Given()
    limits: ResourceLimits = ResourceLimits()
    output: str | None = None
    retry_max: int | None = None
    loops_max: int | None = None
    failure_routing: bool = True
    force: bool = False
    base: str | None = None
    labels: dict[str, str] = {}
    compile_options: CompileOptions = CompileOptions()
    workflow: Workflow | None = None
    choice: Choice = Choice()
    directory: str = ""
    cached: bool = False
    executor: str | None = None
    cluster_folder: str | None = None
