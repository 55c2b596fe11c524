"""The workers of a server: which ones there are, which attempts they hold, and whether they still live.

    every message of a worker renews its lease (15 s)
    silent for longer                a worker and its attempts are lost
    this server was away or stopped  leases count from the moment at which the server hears again

All methods run in the thread of the host; `Host.call` brings the requests of workers there.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from errno import EIO

from msgspec.structs import replace

from resile.engine.host.worker_place import Held, Offer, OfferedRoom, WorkerPlace
from resile.errors import ResileError
from resile.executors.contract import Adopted, Ended, Lost, Report, Share, Started, Withdrawn
from resile.executors.shared.hub import Hub
from resile.executors.shared.places import Key, Placed, View, epoch_of, run_of
from resile.executors.worker.messages import (
    LEASE_SECONDS,
    Appeal,
    Beat,
    End,
    Grant,
    Introduction,
    Reports,
    Start,
    Welcome,
    Word,
    WorkerDocument,
)
from resile.executors.worker.shared_folder import find_shared
from resile.store.lease import boot_seconds
from resile.store.server_tables import Claim, ClaimKey, ServerTables

# The host checks the leases at least this often. A later check means that it was stopped: then all leases begin again.
LOOK_SECONDS_MAX = 6.0
# The claims of recorded attempts are deleted together: after this many seconds, or at this number of claims.
DROP_SECONDS, DROPPED_MAX = 1.0, 256
# How long a lost worker stays in the list.
LISTED_SECONDS = 3600.0


class Workers:
    """All workers that called this server, and those that hold attempts of earlier servers."""

    def __init__(self, hub: Hub, tables: ServerTables) -> None:
        self._hub = hub
        self._tables = tables
        self._places: dict[str, WorkerPlace] = {}
        self._dropped: list[ClaimKey] = []
        self._drop_at = self._looked_at = boot_seconds()
        self._is_closed = False
        hub.workers = self

    # --- calls of workers

    def register(self, told: Introduction) -> Welcome:
        """Add a new worker, or accept a worker that comes back."""
        self._refuse_closed()
        shared_output = find_shared(told.shared_output) if told.shared_output is not None else ""
        number = told.id if told.id.rpartition("-")[0] == told.name else ""
        place = self._place(number or f"{told.name}-{os.urandom(6).hex()}")
        self._hear(place)
        if place not in self._hub.places:
            self._hub.places.append(place)
        place.is_registered, place.is_draining, place.slots = True, False, told.slots
        place.labels = frozenset(told.labels)
        place.shared_output = shared_output
        cpus = float(told.slots) if told.cpus is None else told.cpus
        # The room is new: take again the shares of the attempts that the worker holds.
        memory = sys.maxsize if told.memory_bytes is None else told.memory_bytes
        place.room = OfferedRoom(cpus, memory, told.gpus)
        for view in self._hub.views.values():
            for placed in view.placed.values():
                if placed.place is place:
                    place.room.take_again(placed.share, placed.gpus)
        place.answer()
        self._take_back(place, told.held)
        return Welcome(place.id, LEASE_SECONDS, self._find_gone(place, told.held))

    def claim(self, number: str, told: Appeal) -> Offer:
        """Let a worker wait for attempts; answer an earlier claim of it that still waits."""
        place = self._find_place(number)
        place.answer()
        if told.held is not None:
            self._take_back(place, told.held)
        assert isinstance(place.room, OfferedRoom)
        place.room.offered_bytes = place.room.whole.memory_bytes if told.memory_bytes is None else told.memory_bytes
        place.offer = offer = Offer(Future(), told.slots)
        gone = self._find_gone(place, told.held or ())
        if gone or place.is_draining or any(held.killed and held.phase != "ended" for held in place.held.values()):
            place.offer = None
            offer.answer.set_result(Grant([], [], place.word(gone)))
        return offer

    def end_claim(self, number: str, offer: Offer) -> None:
        """Answer a claim that has waited long enough, or whose worker has closed the connection."""
        place = self._places.get(number)
        if place is not None and place.offer is offer:
            place.answer()

    def report(self, number: str, told: Reports) -> Word:
        """Take a worker's reports, each once; ignore reports about attempts that it does not hold."""
        place = self._find_place(number)
        tokens = dict.fromkeys([one.token for one in told.starts])
        tokens |= dict.fromkeys([one.token for one in told.output]) | dict.fromkeys([one.token for one in told.ends])
        gone = self._find_gone(place, tokens)
        need: dict[str, tuple[int, int]] = {}
        for start in told.starts:
            if start.token in place.held:
                self._start(place, place.held[start.token], start)
        for chunk in told.output:
            held = place.held.get(chunk.token)
            if held is not None and not held.keep(chunk.stream, chunk.offset, chunk.data):
                need[chunk.token] = held.output.sizes
        for end in told.ends:
            held = place.held.get(end.token)
            if held is not None and not self._end(place, held, end):
                need[end.token] = held.output.sizes
        return place.word(gone, need)

    def heartbeat(self, number: str, told: Beat) -> Word:
        """Note that a worker lives, without reports; forget a worker that leaves and holds nothing."""
        place = self._find_place(number)
        place.is_draining = place.is_draining or told.draining
        if place.is_draining:
            place.answer()
        if told.leaving and not place.held:
            place.answer()
            self._hub.places.remove(place)
            del self._places[number]
        return place.word()

    def drain(self, number: str) -> None:
        """Let a worker finish its attempts, and exit."""
        place = self._places.get(number)
        if place is None or place.is_lost or not place.is_registered:
            raise _unknown(number)
        place.is_draining = True
        place.answer()

    def documents(self) -> list[WorkerDocument]:
        """The documents of all registered workers, for the API."""
        return [_document(place) for place in self._places.values() if place.is_registered]

    # --- calls of the host and of runs

    def open_run(self, view: View) -> None:
        """Find out which attempts of a run workers hold, when this server begins to drive the run."""
        run, epoch = run_of(view.profile), epoch_of(view.profile)
        for claim in self._tables.claims(run=run):
            if claim.epoch != epoch:
                self._drop(claim)
                continue
            place = self._place(claim.worker)
            held = place.held.get(claim.token)
            if held is None:
                held = Held(claim, view.profile, view.folder, place.name, "found")
                place.hold(held)
            else:
                # This server drove the run before; the worker repeats the reports that were not recorded.
                place.note_phase(held, "found")
                held.engine_asked = False
            if place.is_lost:
                self._revive(place)
            share = Share(memory_bytes=claim.memory_bytes)
            view.placed[held.key] = Placed(place, share, (), started=True)
            place.room.take_again(share, ())

    def find(self, view: View, attempts: Mapping[Key, bool]) -> set[Key]:
        """Those of an engine's attempts that workers hold; their workers will report them."""
        found: set[Key] = set()
        for place in self._places.values():
            for held in list(place.held.values()):
                if held.profile == view.profile and held.key in attempts:
                    held.engine_asked, held.in_doubt = True, attempts[held.key]
                    found.add(held.key)
                    if held.missing:
                        self._settle_missing(place, held)
        return found

    def look(self, now: float) -> float:
        """Give up workers that were silent for too long; return the time of the next check."""
        if now - self._looked_at > LOOK_SECONDS_MAX:
            for place in self._places.values():
                place.lease_until = max(place.lease_until, now + LEASE_SECONDS)
        self._looked_at = now
        until = now + LOOK_SECONDS_MAX / 2
        for place in list(self._places.values()):
            if place.is_lost:
                if place.heard_at + LISTED_SECONDS < time.time():
                    del self._places[place.id]
            elif place.lease_until <= now:
                self._lose(place)
            else:
                until = min(until, place.lease_until)
        if self._dropped and (now >= self._drop_at or len(self._dropped) >= DROPPED_MAX):
            dropped, self._dropped = self._dropped, []
            self._tables.drop_claims(dropped)
        return until

    def count(self) -> int:
        """How many workers live."""
        return sum(place.is_registered and not place.is_lost for place in self._places.values())

    def close(self) -> None:
        """Answer all waiting claims, because this server stops."""
        self._is_closed = True
        for place in self._places.values():
            place.answer()
        if self._dropped:
            self._tables.drop_claims(self._dropped)

    # --- parts

    def _place(self, number: str) -> WorkerPlace:
        """The place of the worker with this id; a new place if the worker has not come back yet."""
        place = self._places.get(number)
        if place is None:
            place = WorkerPlace(number, number.rpartition("-")[0], self._hub.views.get, self._add)
            place.lease_until = boot_seconds() + LEASE_SECONDS
            self._places[number] = place
        return place

    def _add(self, claims: list[Claim]) -> None:
        # Keep a claim in the store whose attempt is given again under the same key.
        keys = {(claim.run, claim.epoch, claim.job, claim.attempt) for claim in claims}
        self._dropped = [key for key in self._dropped if key not in keys]
        self._tables.add_claims(claims)

    def _drop(self, claim: Claim) -> None:
        if not self._dropped:
            self._drop_at = boot_seconds() + DROP_SECONDS
        self._dropped.append((claim.run, claim.epoch, claim.job, claim.attempt))

    def _find_place(self, number: str) -> WorkerPlace:
        """The worker with this id, whose call is handled; renews its lease."""
        self._refuse_closed()
        place = self._places.get(number)
        if place is None or place.is_lost or not place.is_registered:
            raise _unknown(number)
        self._hear(place)
        return place

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise ResileError("stopping", "the server stops", hint="workers keep what they have for the next server")

    def _hear(self, place: WorkerPlace) -> None:
        place.lease_until = boot_seconds() + LEASE_SECONDS
        place.heard_at = time.time()
        place.is_lost = False

    def _revive(self, place: WorkerPlace) -> None:
        """Wait again for a worker that was given up, because a claim says that it has attempts."""
        place.is_lost, place.is_registered = False, False
        place.lease_until = boot_seconds() + LEASE_SECONDS

    def _find_gone(self, place: WorkerPlace, tokens: Iterable[str]) -> list[str]:
        """Which of these attempts the worker must drop; it keeps those of runs that still wait for a server."""
        unknown = [token for token in tokens if token not in place.held]
        if not unknown:
            return []
        stored = {claim.token: claim for claim in self._tables.claims(worker=place.id)}
        dropped = set(self._dropped)
        gone: list[str] = []
        for token in unknown:
            claim = stored.get(token)
            if claim is None or (claim.run, claim.epoch, claim.job, claim.attempt) in dropped:
                gone.append(token)
            elif self._tables.submission(claim.run) is None:
                self._drop(claim)
                gone.append(token)
        return gone

    def _take_back(self, place: WorkerPlace, held_there: Iterable[str]) -> None:
        """Settle the attempts that the worker was given and lacks, because the answer or its folder got lost."""
        there = set(held_there)
        for token, held in list(place.held.items()):
            if token in there or held.phase == "ended":
                held.missing = False
                continue
            held.missing = True
            if held.engine_asked:
                self._settle_missing(place, held)

    def _settle_missing(self, place: WorkerPlace, held: Held) -> None:
        """End an attempt that the worker lacks: as lost if it may have started, else as withdrawn."""
        now = self._now(held)
        if held.phase == "started" or held.in_doubt:
            report: Report = Lost(*held.key, now, f"worker {place.name} has no record of it", held.log)
        else:
            report = Withdrawn(*held.key, now)
        self._finish(place, held, report)

    def _finish(self, place: WorkerPlace, held: Held, report: Report) -> None:
        """Report the end of an attempt in place of its worker."""
        place.forget(held)
        self._drop(held.claim)
        place.deliver(held, report)

    def _lose(self, place: WorkerPlace) -> None:
        """Give up a worker that was silent for too long, and report its attempts as lost."""
        place.is_lost = True
        place.answer()
        if place in self._hub.places:
            self._hub.places.remove(place)
        if not place.is_registered and not place.held:
            del self._places[place.id]
        for held in list(place.held.values()):
            if held.phase == "ended":
                # The engine already has the end, and records it.
                continue
            why = f"worker {place.name} was not heard of for {LEASE_SECONDS:.0f} s"
            self._finish(place, held, Lost(*held.key, self._now(held), why, held.log))

    def _now(self, held: Held) -> float:
        """The present time by the clock of the attempt's run."""
        view = self._hub.views.get(held.profile)
        offset = self._hub.clock_offset if view is None else self._hub.clock_offset + view.clock_shift
        return boot_seconds() + offset

    def _start(self, place: WorkerPlace, held: Held, told: Start) -> None:
        """Report that an attempt runs: as started, or as adopted if an engine found it at the worker."""
        self._link(place, held, told.segment)
        at = min(told.at, self._now(held))
        # While the attempt runs, the lengths of its output are not final.
        log = replace(held.log, out_length=0, err_length=0)
        if held.phase == "given":
            delivered = place.deliver(held, Started(*held.key, at, told.pid, log))
        elif held.phase == "found":
            delivered = place.deliver(held, Adopted(*held.key, at, told.pid, log))
        else:
            return
        if delivered:
            place.note_phase(held, "started")

    def _end(self, place: WorkerPlace, held: Held, told: End) -> bool:
        """Report the end of an attempt; return False if output of it is missing."""
        if held.phase == "ended":
            return True
        self._link(place, held, told.segment)
        is_whole = told.kind != "ended" or (told.out_length, told.err_length) == held.output.sizes
        if not is_whole and not held.output.is_linked:
            return False
        if not is_whole and held.waits_for_output():
            # The worker will report the end again.
            return True
        report = self._report_of(place, held, told)
        if not is_whole and isinstance(report, Ended):
            report = replace(report, spawn_error=EIO, spawn_stage="output")

        def note_recorded() -> None:
            """Forget the attempt and its claim, because its end is durable."""
            place.note_recorded(held)
            self._drop(held.claim)

        if place.deliver(held, report, note_recorded):
            place.note_phase(held, "ended")
            if isinstance(report, Ended):
                place.note_duration(report.at - report.started_at)
        return True

    def _link(self, place: WorkerPlace, held: Held, segment: str) -> None:
        """Read the output of an attempt from the folder that its worker shares with the server."""
        if segment and place.shared_output:
            held.link(place.shared_output, segment)

    def _report_of(self, place: WorkerPlace, held: Held, told: End) -> Report:
        """Convert a worker's report of an end; its times are shifted so that none is later than now."""
        shift = min(0.0, self._now(held) - told.at)
        at = told.at + shift
        match told.kind:
            case "withdrawn":
                return Withdrawn(*held.key, at)
            case "stopped":
                return Withdrawn(*held.key, at, started=True)
            case "lost":
                return Lost(*held.key, at, f"worker {place.name}: {told.why}", held.log)
        return Ended(
            *held.key,
            told.started_at + shift,
            at,
            told.wait_status,
            told.cpu_seconds,
            told.rss_bytes_max,
            held.log,
            told.reason,
            told.spawn_error,
            told.spawn_stage,
            told.oom_kills,
            0 if held.phase == "started" else told.pid,
        )


def _unknown(number: str) -> ResileError:
    return ResileError("no-such-worker", f"there is no worker {number!r}", hint="a worker registers with POST /workers")


def _document(place: WorkerPlace) -> WorkerDocument:
    """The document of a worker, for the API."""
    status = "lost" if place.is_lost else "draining" if place.is_draining else "active"
    return WorkerDocument(
        place.id,
        place.name,
        sorted(place.labels),
        place.slots,
        place.room.whole.memory_bytes,
        place.room.whole.gpus,
        status,
        len(place.held),
        round(max(0.0, time.time() - place.heard_at), 3),
    )
