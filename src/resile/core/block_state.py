"""The blocks of nodes that a run has requested, and what its triggers count; scheduling/blocks.py changes both."""

from __future__ import annotations

from msgspec import Struct


class Block(Struct, gc=False, omit_defaults=True):
    """A block that the run requested for an allocation of the workflow, and that has not ended.

    `because` is the number of the event that requested it. `tried` means that the batch system has accepted or refused
    it. `workers` counts the workers that have started in it.
    """

    allocation: int
    because: int
    workers: int = 0
    tried: bool = False


class Blocks(Struct, omit_defaults=True):
    """The `open` blocks of an epoch, by number; `last` is the highest number so far, also of earlier epochs.

    `fired` counts how often each allocation of the workflow was requested. `ready` and `settled` count how often each
    step that a trigger names became ready, or was over; `completions` counts how often all steps of the run were over.
    The last three fields are about the current event: `fresh` are the jobs that it made ready, `is_due` says that a
    trigger may hold now, `is_short` that a block has ended.
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
