"""A pool of ordered blocks: the core numbers each block, the pool submits it once and ends it when it has been idle.

If a block ends before a worker started in it, the pool submits it again after a growing pause, unless it was canceled.
The block of a killed engine goes on while it has attempts. When it has ended, the pool submits it again, unless its
walltime was up.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from resile.errors import ResileError
from resile.executors.parsl import slurm
from resile.executors.parsl.node.slots import fit_word
from resile.executors.parsl.pools import Block, Pool, refusal_in

FORMER_SECONDS = 2.0


class CurrentNumber(Iterator[int]):
    """Yields the number of the block that the pool submits now; Parsl names the allocation with it."""

    def __init__(self) -> None:
        self.current = 0

    def __next__(self) -> int:
        return self.current


class Submitted(Struct, frozen=True):
    """The batch system accepted a block, or refused it."""

    block: int
    allocation: str = ""
    problem: str = ""


class BlockBegun(Struct, frozen=True):
    """A worker started in a block."""

    block: int
    node: str


class BlockOver(Struct, frozen=True):
    """A block has ended, and the pool will not submit it again."""

    block: int
    reason: str


BlockEvent = Submitted | BlockBegun | BlockOver


class EarlierAllocations:
    """The newest allocation of each block that earlier engines submitted, by the number of the block.

    The first `look` asks Slurm for them, before this engine submits any.
    """

    def __init__(self, run: int, label: str) -> None:
        self._run, self._label = run, label
        self._found: dict[int, slurm.Allocation] | None = None
        self._again_at = 0.0

    def _find(self) -> dict[int, slurm.Allocation]:
        """The newest allocation of each block that Slurm still knows."""
        prefix, found = f"resile-{self._run}-", {}
        allocations = slurm.allocations_of(self._label) if slurm.is_there() else []
        for one in sorted(allocations, key=lambda one: int(one.id)):
            number = one.name.removeprefix(prefix)
            if number.isdigit():
                found[int(number)] = one
        return found

    def look(self, now: float) -> None:
        """Ask Slurm for the states of the allocations that had not ended, at most every FORMER_SECONDS."""
        if self._found is None:
            self._found = self._find()
            self._again_at = now + FORMER_SECONDS
        left = [one.id for one in self._found.values() if not one.is_over]
        if left and now >= self._again_at:
            self._again_at = now + FORMER_SECONDS
            try:
                known = slurm.look_up(left)
            except ResileError:
                # The next call asks again.
                return
            self._found = {
                number: known.get(one.id, one) for number, one in self._found.items() if one.is_over or one.id in known
            }

    def goes_on(self, number: int) -> bool:
        """Does a block have an earlier allocation that has not ended?"""
        return self._found is not None and number in self._found and not self._found[number].is_over

    def take_end(self, number: int) -> str:
        """Forget the earlier allocation of a block; return its end if its walltime was up, else an empty text.

        If its walltime was up, the pool must not submit the block again.
        """
        found = self._found.pop(number, None) if self._found is not None else None
        return str(found) if found is not None and found.state == "TIMEOUT" else ""


class OrderedPool(Pool):
    """The blocks of one kind."""

    fetches_ahead = False

    def __init__(self, *given: Any, numbers: CurrentNumber, former: EarlierAllocations | None, **keys: Any) -> None:
        super().__init__(*given, **keys)
        self.numbers = numbers
        self.former = former
        # Parsl's name of each ordered block; empty until the batch system has accepted it.
        self.wanted: dict[int, str] = {}
        # The number of attempts that the connected workers can run at once.
        self.slots = 0
        self.events: list[BlockEvent] = []
        self._workers: dict[str, set[str]] = {}
        self._idle: set[str] = set()
        self._refused: set[int] = set()

    def _slots_on_node(self) -> str:
        """The word for a node's slots: the number in the request, else as many as fit."""
        shape = self.shape
        assert shape.kind is not None
        if shape.kind.parallel:
            return str(shape.kind.parallel)
        return fit_word(shape.cpus, shape.memory_bytes, shape.gpus, 0)

    def tend(self, work: int, busy: Mapping[str, int], now: float) -> None:
        """Note blocks that have ended, submit ordered blocks, and look at the connected workers."""
        del work
        assert self._executor is not None
        self._poll(now)
        self._note_ends(now)
        if self.former is not None:
            self.former.look(now)
        for number in [number for number, name in self.wanted.items() if not name]:
            if now >= self._again_at and not (self.former is not None and self.former.goes_on(number)):
                self._submit_block(number, now)
        self._look_at_workers(busy)

    def _note_ends(self, now: float) -> None:
        """Note blocks that have ended."""
        assert self._executor is not None
        status = self._executor.status_facade
        for number, name in list(self.wanted.items()):
            if not name or (name in status and not status[name].terminal):
                continue
            block, had_workers = self.blocks.pop(name), self._workers.pop(name, ())
            found, text = self._end_of(block)
            if name in self._idle:
                self._end(number, "it was idle")
            elif had_workers or (found is not None and found.state == "CANCELLED"):
                self._end(number, text)
            else:
                self.wanted[number] = ""
                self._note_problem(text or "a block ended before a worker started in it", now)

    def _end(self, number: int, reason: str) -> None:
        del self.wanted[number]
        self.events.append(BlockOver(number, reason))

    def _end_of(self, block: Block) -> tuple[slurm.Allocation | None, str]:
        """The allocation of a block that ended, if the batch system knows it, and why it ended, in words."""
        if self.settings.provider != "slurm":
            return None, ""
        try:
            found = slurm.wait_for_end(block.job)
        except ResileError as error:
            return None, error.message
        return found, "" if found is None else str(found)

    def _submit_block(self, number: int, now: float) -> None:
        """Submit a block to the batch system, unless the walltime of its earlier allocation was up."""
        assert self._executor is not None
        if self.former is not None and (end := self.former.take_end(number)):
            self._end(number, end)
            return
        self.numbers.current = number
        names = self._executor.scale_out_facade(1)
        if names:
            (name,) = names
            job = str(self._executor.blocks_to_job_id[name])
            self.wanted[number] = name
            self.blocks[name] = Block(name, job, now)
            self.events.append(Submitted(number, job))
            return
        failed = [one for one in self._executor.status_facade.values() if one.terminal and one.message]
        self._note_problem(refusal_in(failed[-1]) if failed else "", now)
        if number not in self._refused:
            self._refused.add(number)
            self.events.append(Submitted(number, problem=self.problem or "the batch system gives no reason"))

    def _look_at_workers(self, has_attempts: Mapping[str, int]) -> None:
        """Note workers that are new, count their slots, and end blocks that have been idle."""
        assert self._executor is not None
        numbers = {name: number for number, name in self.wanted.items() if name}
        busy: dict[str, bool] = {}
        slots = 0
        for manager in self._executor.connected_managers():
            name = manager["block_id"]
            if name not in numbers or not manager["active"]:
                continue
            known = self._workers.setdefault(name, set())
            if manager["manager"] not in known:
                known.add(manager["manager"])
                self.note_work(name)
                self.events.append(BlockBegun(numbers[name], self._node_of(self.blocks[name])))
            slots += manager["worker_count"]
            is_busy = bool(manager["tasks"]) or manager["idle_duration"] <= self.settings.idle_seconds
            busy[name] = busy.get(name, name in has_attempts) or is_busy
        self.slots = slots
        for name in [name for name, is_busy in busy.items() if not is_busy and name not in self._idle]:
            found = self._look_up(self.blocks[name])
            if found is not None and found.is_over:
                # The block's workers have exited, and Parsl has not noticed yet.
                continue
            self._idle.add(name)
            self._cancel([name])

    def _node_of(self, block: Block) -> str:
        """The node of a block, or its nodes, as the batch system names them."""
        if self.settings.provider != "slurm":
            return os.uname().nodename
        found = self._look_up(block)
        return "" if found is None else found.node

    def _look_up(self, block: Block) -> slurm.Allocation | None:
        """The allocation of a block as Slurm reports it; None without an answer."""
        if self.settings.provider != "slurm":
            return None
        try:
            return slurm.look_up([block.job]).get(block.job)
        except ResileError:
            return None
