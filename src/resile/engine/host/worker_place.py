"""A worker as a place for attempts: the worker asks for attempts, runs them, and reports how they end.

    worker asks --> Offer of free slots --hub--> start --> flush: claims into the store, then attempts to the worker
    worker reports start, output, end --> the view of the run --the end is durable--> the worker may forget the attempt

A claim in the store names the worker of an attempt. The host writes the claim before the worker gets the attempt, so
that the next server knows the attempts of all workers.
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

# How many seconds may pass until other machines see what one machine wrote to a shared folder.
SHARED_SECONDS_MAX = 30.0
# How many seconds of work may wait in the launcher of a worker.
AHEAD_SECONDS = 0.1
Phase = Literal["given", "found", "started", "ended"]


class Held:
    """An attempt that a worker has.

    given --> started --> ended --> forgotten, once the end is durable
    found: an engine took over the run and found the claim; the worker's next report shows the real phase
    """

    def __init__(
        self, claim: Claim, profile: int, folder: str, name: str, phase: Literal["given", "found"] = "given"
    ) -> None:
        """`folder` is the output folder of the run's epoch, `name` the name of the worker."""
        self.claim = claim
        self.profile = profile
        self.key: Key = (claim.job, claim.attempt)
        self.output = WorkerOutput(folder, claim.token, name, is_new=phase == "given")
        self.phase: Phase = phase
        self.killed = False
        # For a `found` attempt: has an engine asked for it? May it have started? Is it missing at the worker?
        self.engine_asked = phase == "given"
        self.in_doubt = False
        self.missing = False
        self._output_until = 0.0

    @property
    def log(self) -> LogRange:
        """The segment and range of the output so far."""
        return self.output.log

    @property
    def claim_key(self) -> tuple[int, int, int, int]:
        """The key of its claim in the store."""
        return self.claim.run, self.claim.epoch, self.claim.job, self.claim.attempt

    def keep(self, stream: Stream, offset: int, data: bytes) -> bool:
        """Append output; return False if earlier output is missing. After an error the worker sends the data again."""
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
        """May output of an ended attempt still appear in the shared folder? After SHARED_SECONDS_MAX it may not."""
        now = boot_seconds()
        self._output_until = self._output_until or now + SHARED_SECONDS_MAX
        return now < self._output_until


class OfferedRoom(Room):
    """The room of a worker; its last claim says how much memory is free there."""

    def __init__(self, cpus: float, memory_bytes: int, gpus: Sequence[str]) -> None:
        super().__init__(cpus, memory_bytes, gpus)
        self.offered_bytes = memory_bytes

    def fits(self, share: Share) -> bool:
        """Is there room for an attempt that needs this share?"""
        return super().fits(share) and share.memory_bytes <= self.offered_bytes

    def take(self, share: Share) -> tuple[str, ...]:
        """Take a share of the room; return the names of its GPUs."""
        self.offered_bytes -= share.memory_bytes
        return super().take(share)


class Offer(Struct):
    """An unanswered claim of a worker that has this many free slots."""

    answer: Future[Grant]
    slots: int


class WorkerPlace:
    """One worker; see the protocol `Place` for the methods. Only the thread of the host uses it."""

    def __init__(
        self, number: str, name: str, view_of: Callable[[int], View | None], add_claims: Callable[[list[Claim]], None]
    ) -> None:
        """`number` is the worker's id; `view_of` finds the view of a profile; `add_claims` writes to the store."""
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
        # The folder in which the server reads the output itself; empty if the worker sends it.
        self.shared_output = ""
        self.held: dict[str, Held] = {}
        self.offer: Offer | None = None
        self._by_key: dict[tuple[int, Key], Held] = {}
        self._unfinished = 0
        self._unsent: list[tuple[Held, Launch]] = []
        self._recorded: list[str] = []
        self._mean_seconds = 1.0
        self._view_of = view_of
        self._add_claims = add_claims

    # --- the protocol of places

    def has_slot(self) -> bool:
        """May the worker get one more attempt?"""
        if self.offer is None or self.offer.slots <= 0 or self.is_draining:
            return False
        # While attempts are short, some wait in the worker's launcher: one call carries many (as in local_place.py).
        ahead = 0
        if self._mean_seconds < SHORT_SECONDS:
            ahead = max(self.slots, min(AHEAD, int(self.slots * AHEAD_SECONDS / max(self._mean_seconds, 1e-6))))
        # A full worker gets more when half of its waiting attempts have begun, so that one answer again carries many.
        return self._unfinished < self.slots + (ahead if self._unsent else max(0, ahead // 2))

    def note_duration(self, seconds: float) -> None:
        """Update the mean duration of attempts with the seconds that one attempt took."""
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
        self._unsent.append((held, launch))
        self.hold(held)

    def flush(self) -> None:
        """Write the claims of new attempts, then answer the worker."""
        if not self._unsent:
            return
        new, self._unsent = self._unsent, []
        self._add_claims([held.claim for held, _ in new])
        profiles = [self._profile(number) for number in dict.fromkeys(held.profile for held, _ in new)]
        self.answer([assignment_of(held, launch, self._folder(held)) for held, launch in new], profiles)

    def kill(self, profile: int, job: int, attempt: int) -> None:
        """Tell the worker to end an attempt: at once if the worker waits for an answer, else with the next answer."""
        held = self._by_key.get((profile, (job, attempt)))
        if held is not None:
            self.flush()
            held.killed = True
            self.answer()

    # --- what the worker says

    def hold(self, held: Held) -> None:
        """Note that the worker has this attempt."""
        self.held[held.claim.token] = held
        self._unfinished += held.phase != "ended"
        self._by_key[held.profile, held.key] = held

    def note_phase(self, held: Held, phase: Phase) -> None:
        """Note that an attempt of the worker is in another phase."""
        self._unfinished += (phase != "ended") - (held.phase != "ended")
        held.phase = phase

    def forget(self, held: Held) -> None:
        """Note that the worker no longer has this attempt."""
        if self.held.pop(held.claim.token, None) is not None:
            self._unfinished -= held.phase != "ended"
        if self._by_key.get((held.profile, held.key)) is held:
            del self._by_key[held.profile, held.key]

    def note_recorded(self, held: Held) -> None:
        """Forget an attempt whose end is durable, and let the next answer tell the worker to forget it too."""
        self.forget(held)
        self._recorded.append(held.claim.token)

    def word(self, gone: Sequence[str] = (), need: dict[str, tuple[int, int]] | None = None) -> Word:
        """Make the message with the worker's orders; each recorded attempt is in one message only."""
        recorded, self._recorded = self._recorded, []
        kill = [token for token, held in self.held.items() if held.killed and held.phase != "ended"]
        return Word(kill, list(gone), recorded, need or {}, self.is_draining)

    def answer(self, attempts: list[Assignment] | None = None, profiles: list[Profile] | None = None) -> None:
        """Answer the worker if it waits for an answer."""
        if self.offer is not None:
            offer, self.offer = self.offer, None
            offer.answer.set_result(Grant(attempts or [], profiles or [], self.word()))

    def deliver(self, held: Held, report: Report, recorded: Callable[[], None] | None = None) -> bool:
        """Pass a report to the run of its attempt; return False if no engine of this server drives that run now."""
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
        """What the attempts of a run share; of the variables, those that are secret or differ from the server's own."""
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
    """The message with an attempt for its worker; it holds the content of the run's files that the arguments name.

    If such a file is too large, the message has a command instead that says so and fails.
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
