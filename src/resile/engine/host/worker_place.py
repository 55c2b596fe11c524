"""A worker as a place: it takes attempts when it asks for some, and tells what becomes of them.

    claim --> offer: so many slots --hub--> start, flush: claims in the store, then the answer --> the worker
    start, output, end of the worker --> the view of the run --(recorded)--> the worker may forget it

A claim is in the store before the worker hears of it, so the next server finds what workers have.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Literal

from msgspec import Struct

from resile.executors.contract import Launch, Report, Share, Stream
from resile.executors.shared.local_place import NEWEST, SHORT_SECONDS
from resile.executors.shared.places import Key, Room, View, epoch_of, run_of
from resile.executors.shared.worker_output import FileTooLarge, WorkerOutput, files_of
from resile.executors.worker.messages import AHEAD, Assignment, Grant, Profile, Word
from resile.executors.worker.shared_folder import attempt_folder
from resile.model.failure import LogRange
from resile.store.errors import StoreError
from resile.store.lease import boot_seconds
from resile.store.server_tables import Claim

# So long what one machine wrote to a shared folder may take to be seen on another.
SHARED_SECONDS_MAX = 30.0
# What waits in the launcher of a worker takes no longer than this.
AHEAD_SECONDS = 0.1
Phase = Literal["given", "found", "started", "ended"]


class Held:
    """An attempt that a worker has.

    given --> started --> ended --> recorded (it is forgotten)
    found: an earlier server gave it; what the worker says next settles it
    """

    def __init__(
        self, claim: Claim, profile: int, folder: str, name: str, phase: Literal["given", "found"] = "given"
    ) -> None:
        """`folder` is that of the run's epoch, `name` the worker's."""
        self.claim = claim
        self.profile = profile
        self.key: Key = (claim.job, claim.attempt)
        self.output = WorkerOutput(folder, claim.token, name, is_new=phase == "given")
        self.phase: Phase = phase
        self.killed = False
        # Of one that an earlier server gave: has the engine asked for it, may it have started, does the worker miss it?
        self.asked = phase == "given"
        self.in_doubt = False
        self.missing = False
        self._output_until = 0.0

    @property
    def log(self) -> LogRange:
        """Where the output so far is."""
        return self.output.log

    @property
    def claim_key(self) -> tuple[int, int, int, int]:
        """The key of its claim in the store."""
        return self.claim.run, self.claim.epoch, self.claim.job, self.claim.attempt

    def keep(self, stream: Stream, offset: int, data: bytes) -> bool:
        """Keep output; False where some is missing. After an error the worker tells it again."""
        try:
            return self.output.keep(stream, offset, data)
        except OSError as error:
            raise StoreError("output-unusable", f"can't write output: {error.strerror}") from error

    def link(self, shared_output: str, segment: str) -> None:
        """Read the output from the folder that the worker shares with the server."""
        claim = self.claim
        try:
            self.output.link(attempt_folder(shared_output, claim.run, claim.epoch, claim.token), segment)
        except OSError as error:
            raise StoreError("output-unusable", f"can't link output: {error.strerror}") from error

    def waits_for_output(self) -> bool:
        """May output of an attempt that has ended still show up in the shared folder? For a while."""
        now = boot_seconds()
        self._output_until = self._output_until or now + SHARED_SECONDS_MAX
        return now < self._output_until


class OfferedRoom(Room):
    """The room of a worker; its last claim says how much memory is free there."""

    def __init__(self, cpus: float, memory_bytes: int, gpus: Sequence[str]) -> None:
        super().__init__(cpus, memory_bytes, gpus)
        self.offered_bytes = memory_bytes

    def fits(self, share: Share) -> bool:
        """Is there room for this?"""
        return super().fits(share) and share.memory_bytes <= self.offered_bytes

    def take(self, share: Share) -> tuple[str, ...]:
        """Take this; return the names of the GPUs."""
        self.offered_bytes -= share.memory_bytes
        return super().take(share)


class Offer(Struct):
    """A claim that waits for its answer."""

    answer: Future[Grant]
    slots: int


class WorkerPlace:
    """One worker; see the protocol of places for the methods. The thread of the host uses it."""

    def __init__(
        self, number: str, name: str, view_of: Callable[[int], View | None], add: Callable[[list[Claim]], None]
    ) -> None:
        """`number` is its id; `add` writes claims to the store."""
        self.id = number
        self.name = name
        self.labels: frozenset[str] = frozenset()
        self.room: Room = OfferedRoom(0.0, 0, ())
        self.slots = 0
        self.is_registered = False
        self.is_draining = False
        self.is_lost = False
        self.lease_until = 0.0
        self.heard_at = 0.0
        # The folder with the output of its attempts, where the server reads that itself.
        self.shared_output = ""
        self.held: dict[str, Held] = {}
        self.offer: Offer | None = None
        self._by_key: dict[tuple[int, Key], Held] = {}
        self._unfinished = 0
        self._new: list[tuple[Held, Launch]] = []
        self._recorded: list[str] = []
        self._mean_seconds = 1.0
        self._view_of = view_of
        self._add = add

    # --- the protocol of places

    def has_slot(self) -> bool:
        """Does the worker wait for an attempt?"""
        if self.offer is None or self.offer.slots <= 0 or self.is_draining:
            return False
        # As in local_place.py: while attempts are short some wait in the worker's launcher, so that a call is for many.
        ahead = 0
        if self._mean_seconds < SHORT_SECONDS:
            ahead = max(self.slots, min(AHEAD, int(self.slots * AHEAD_SECONDS / max(self._mean_seconds, 1e-6))))
        # A worker that has enough to do is asked again when half of that is done: then the answer has many attempts.
        return self._unfinished < self.slots + (ahead if self._new else max(0, ahead // 2))

    def note_duration(self, seconds: float) -> None:
        """An attempt took so long."""
        self._mean_seconds += NEWEST * (seconds - self._mean_seconds)

    def start(self, profile: int, launch: Launch) -> None:
        """Give the worker an attempt with the next `flush`."""
        assert self.offer is not None
        view = self._view_of(profile)
        assert view is not None
        self.offer.slots -= 1
        claim = Claim(
            run_of(profile),
            epoch_of(profile),
            launch.job,
            launch.attempt,
            self.id,
            os.urandom(12).hex(),
            time.time(),
            launch.share.memory_bytes,
        )
        held = Held(claim, profile, view.folder, self.name)
        self._new.append((held, launch))
        self.hold(held)

    def flush(self) -> None:
        """Write the claims of new attempts, then answer the worker."""
        if not self._new:
            return
        new, self._new = self._new, []
        self._add([held.claim for held, _ in new])
        profiles = [self._profile(number) for number in dict.fromkeys(held.profile for held, _ in new)]
        self.answer([assignment_of(held, launch, self._folder(held)) for held, launch in new], profiles)

    def kill(self, profile: int, job: int, attempt: int) -> None:
        """Let the worker end an attempt; it hears of it at once where it waits for work."""
        held = self._by_key.get((profile, (job, attempt)))
        if held is not None:
            self.flush()
            held.killed = True
            self.answer()

    # --- the words of the worker

    def hold(self, held: Held) -> None:
        """The worker has this attempt."""
        self.held[held.claim.token] = held
        self._unfinished += held.phase != "ended"
        self._by_key[held.profile, held.key] = held

    def note_phase(self, held: Held, phase: Phase) -> None:
        """An attempt that the worker has is in another phase."""
        self._unfinished += (phase != "ended") - (held.phase != "ended")
        held.phase = phase

    def forget(self, held: Held) -> None:
        """The worker has this attempt no more."""
        if self.held.pop(held.claim.token, None) is not None:
            self._unfinished -= held.phase != "ended"
        if self._by_key.get((held.profile, held.key)) is held:
            del self._by_key[held.profile, held.key]

    def note_recorded(self, held: Held) -> None:
        """The end of an attempt is durable: the worker may forget it."""
        self.forget(held)
        self._recorded.append(held.claim.token)

    def word(self, gone: Sequence[str] = (), need: dict[str, tuple[int, int]] | None = None) -> Word:
        """What the worker is to know now."""
        recorded, self._recorded = self._recorded, []
        kill = [token for token, held in self.held.items() if held.killed and held.phase != "ended"]
        return Word(kill, list(gone), recorded, need or {}, self.is_draining)

    def answer(self, attempts: list[Assignment] | None = None, profiles: list[Profile] | None = None) -> None:
        """Answer the claim that waits, if there is one."""
        if self.offer is not None:
            offer, self.offer = self.offer, None
            offer.answer.set_result(Grant(attempts or [], profiles or [], self.word()))

    def deliver(self, held: Held, report: Report, recorded: Callable[[], None] | None = None) -> bool:
        """Pass a report on to the run of an attempt; False where no engine of this server drives it now."""
        view = self._view_of(held.profile)
        if view is None:
            return False
        view.deliver(report, None, recorded)
        return True

    def _folder(self, held: Held) -> str:
        view = self._view_of(held.profile)
        assert view is not None
        return view.folder

    def _profile(self, number: int) -> Profile:
        """What the attempts of a run share, for the worker: of the environment only what the run adds or hides."""
        view = self._view_of(number)
        assert view is not None
        common = view.surroundings
        hidden = set(common.secrets)
        own = [(name, value) for name, value in common.env.items() if os.environb.get(name) != value or value in hidden]
        return Profile(
            number,
            run_of(number),
            common.directory,
            common.own_directory,
            own,
            list(common.secrets),
            os.fsencode(sys.executable),
        )


def assignment_of(held: Held, launch: Launch, folder: str) -> Assignment:
    """An attempt as its worker gets it, with the files of its own that its arguments name.

    One with a file that is too large for that becomes a command that says so and fails.
    """
    claim = held.claim
    argv, fallback = list(launch.argv), list(launch.fallback)
    try:
        files = files_of((*argv, *fallback), folder)
    except FileTooLarge as refused:
        files, fallback = [], []
        argv = [b"/bin/sh", b"-c", b'echo "$1" >&2; exit 126', b"resile", str(refused).encode()]
    return Assignment(
        token=claim.token,
        profile=held.profile,
        run=claim.run,
        epoch=claim.epoch,
        job=claim.job,
        attempt=claim.attempt,
        argv=argv,
        fallback=fallback,
        env=list(launch.env),
        cwd=launch.cwd,
        timeout_seconds=launch.timeout_seconds,
        grace_seconds=launch.grace_seconds,
        memory_bytes=launch.memory_bytes,
        share_memory_bytes=launch.share.memory_bytes,
        files=files,
    )
