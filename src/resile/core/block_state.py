"""The blocks of nodes that a run has requested, and what its requests wait for; scheduling/blocks.py changes it."""

from __future__ import annotations

from msgspec import Struct


class Block(Struct, gc=False, omit_defaults=True):
    """A block that was requested by an allocation of the workflow, and has not ended.

    `because` is the seq of the request. The batch system was asked for it once it is `tried`. `workers` counts those
    that have started in it.
    """

    allocation: int
    because: int
    workers: int = 0
    tried: bool = False


class Blocks(Struct, omit_defaults=True):
    """The blocks of an epoch that are `open`, by number; numbers go on from epoch to epoch.

    `fired` counts how often each allocation of the workflow was requested. `ready` and `settled` count how often each
    step did that, for the steps of triggers, and `completions` those of the run. `fresh` are jobs that became ready
    during the event; `is_due` says that a trigger may hold, `is_short` that a block has ended.
    """

    fired: list[int]
    last: int = 0
    open: dict[int, Block] = {}
    ready: dict[int, int] = {}
    settled: dict[int, int] = {}
    workers_started: int = 0
    workers_ended: int = 0
    completions: int = 0
    fresh: list[int] = []
    is_due: bool = False
    is_short: bool = False
