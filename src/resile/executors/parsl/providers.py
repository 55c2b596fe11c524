"""Makes Parsl's providers, which start blocks on this machine and through batch systems."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from resile.executors.parsl.on_order.shapes import settings_of
from resile.model.executor import ExecutorSettings

if TYPE_CHECKING:
    from resile.executors.parsl.pools import Kind, Shape


def provider_maker(settings: ExecutorSettings, run: int, label: str, numbers: Iterator[int]) -> Callable[[Shape], Any]:
    """Return a function that makes a provider for a shape; blocks get the name `resile-RUN-N`, N from `numbers`."""

    def make(shape: Shape) -> Any:
        return _MAKERS[settings.provider](settings_of(settings, shape), shape, run, label, numbers)

    return make


def _walltime(seconds: float) -> str:
    whole = math.ceil(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _whole_minutes(settings: ExecutorSettings, shape: Shape) -> str:
    """The walltime for a system that Parsl gives minutes only: Parsl drops the seconds, and 0 is no limit for Slurm."""
    return _walltime(60 * math.ceil((shape.walltime_seconds or settings.walltime_seconds) / 60))


def _local(settings: ExecutorSettings, _shape: Shape, _run: int, _label: str, _numbers: Iterator[int]) -> Any:
    """Blocks on this machine."""
    from parsl.providers import LocalProvider

    return LocalProvider(init_blocks=0, max_blocks=settings.blocks_max, worker_init=settings.worker_init)


def _has(kind: Kind | None, *names: str) -> bool:
    """Do the options of a kind of block begin with one of these names?"""
    words = () if kind is None else kind.options
    return any(word.startswith(f"--{name}") for option in words for word in option.split() for name in names)


def _slurm(settings: ExecutorSettings, shape: Shape, run: int, label: str, numbers: Iterator[int]) -> Any:
    """Blocks that Slurm starts, each an allocation of its own."""
    from parsl.launchers import SimpleLauncher, SrunLauncher
    from parsl.providers import SlurmProvider

    kind = shape.kind
    nodes = settings.nodes_per_block if kind is None else kind.nodes
    workers = settings.workers_per_node
    given = {"partition": settings.partition, "account": settings.account, "qos": settings.qos}
    options = [f"#SBATCH --{name}={value}" for name, value in given.items() if value]
    if not _has(kind, "cpus", "ntasks"):
        options.append(f"#SBATCH --cpus-per-task={math.ceil((shape.cpus or 1) * workers)}")
    if shape.memory_bytes and (kind is None or not kind.on_order):
        # Add memory for the agent and for Parsl's own processes.
        options.append(f"#SBATCH --mem={math.ceil(shape.memory_bytes * workers / 2**20) + OWN_MIB}M")
    if shape.gpus and not _has(kind, "gpus", "gres"):
        options.append(f"#SBATCH --gpus-per-node={shape.gpus * workers}")
    is_spread = kind is None or kind.per_node
    # Of two directives the later one counts.
    options += [f"#SBATCH {option}" for option in (() if kind is None else kind.options)]
    options += [f"#SBATCH --comment={label}", "#SBATCH --no-requeue"]

    class NamedProvider(SlurmProvider):  # type: ignore[misc]
        """Names its jobs `resile-RUN-N`."""

        scheduler_options: str

        def submit(self, command: str, tasks_per_node: int, job_name: str = "") -> Any:
            del job_name
            name = f"resile-{run}-{next(numbers)}"
            before: str = self.scheduler_options
            self.scheduler_options = f"{before}#SBATCH --job-name={name}\n"
            try:
                return super().submit(command, tasks_per_node, name)
            finally:
                self.scheduler_options = before

    return NamedProvider(
        nodes_per_block=nodes,
        init_blocks=0,
        max_blocks=settings.blocks_max,
        walltime=_whole_minutes(settings, shape),
        scheduler_options="\n".join(options),
        worker_init=settings.worker_init,
        exclusive=False,
        launcher=SrunLauncher(overrides=_ON_EACH_NODE) if nodes > 1 and is_spread else SimpleLauncher(),
        cmd_timeout=30,
    )


def _pbs(settings: ExecutorSettings, shape: Shape, _run: int, _label: str, _numbers: Iterator[int]) -> Any:
    """Blocks that PBS starts; in a block of several nodes mpiexec starts the agent on each."""
    from parsl.launchers import MpiExecLauncher, SingleNodeLauncher
    from parsl.providers import PBSProProvider

    return PBSProProvider(
        queue=settings.partition or None,
        account=settings.account or None,
        nodes_per_block=settings.nodes_per_block,
        cpus_per_node=math.ceil((shape.cpus or 1) * settings.workers_per_node),
        init_blocks=0,
        max_blocks=settings.blocks_max,
        walltime=_walltime(shape.walltime_seconds or settings.walltime_seconds),
        worker_init=settings.worker_init,
        launcher=MpiExecLauncher() if settings.nodes_per_block > 1 else SingleNodeLauncher(),
    )


def _lsf(settings: ExecutorSettings, shape: Shape, _run: int, _label: str, _numbers: Iterator[int]) -> Any:
    """Blocks that LSF starts: whole nodes, for whole minutes."""
    from parsl.providers import LSFProvider

    return LSFProvider(
        queue=settings.partition or None,
        project=settings.account or None,
        nodes_per_block=settings.nodes_per_block,
        init_blocks=0,
        max_blocks=settings.blocks_max,
        walltime=_whole_minutes(settings, shape),
        worker_init=settings.worker_init,
        request_by_nodes=True,
    )


# One agent on each node, free to use all of it; steps may call `srun` themselves.
_ON_EACH_NODE = "--ntasks-per-node=1 --cpu-bind=none --overlap"
# The part of a node's memory that the agent, the launcher and Parsl's manager and workers need.
OWN_MIB = 400
_MAKERS = {"local": _local, "slurm": _slurm, "pbs": _pbs, "lsf": _lsf}
