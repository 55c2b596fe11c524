"""Where the attempts of a run go, if not to this machine: the table `[executor]` of a file, or `executor:`."""

from typing import Literal

from msgspec import Struct

Provider = Literal["local", "slurm", "pbs", "lsf"]
POOLS_MAX = 8


class ExecutorSettings(Struct, frozen=True, omit_defaults=True):
    """Blocks of nodes that Parsl starts through a batch system (`provider`), and how many of them there may be.

    An idle block ends after `idle_seconds`; one that has not started after `queue_limit_seconds` is reported. All nodes
    see `directory`. `worker_init` are shell commands that run on a node first; `address` is what nodes connect to.
    With `on_order` blocks come when the actions of the workflow schedule them, otherwise they follow the work.
    """

    directory: str
    provider: Provider = "local"
    account: str = ""
    partition: str = ""
    qos: str = ""
    walltime_seconds: float = 3600.0
    nodes_per_block: int = 1
    blocks_min: int = 0
    blocks_max: int = 1
    workers_per_node: int = 1
    idle_seconds: float = 120.0
    queue_limit_seconds: float = 3600.0
    grace_seconds: float = 60.0
    worker_init: str = ""
    address: str = ""
    on_order: bool = False

    @property
    def slots(self) -> int:
        """How many attempts run at once, if all blocks are there."""
        return self.blocks_max * self.nodes_per_block * self.workers_per_node
