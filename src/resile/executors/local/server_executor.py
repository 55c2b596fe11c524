"""The local executor of a server: one launcher for the attempts of many runs.

A job has a number that is unique over all runs (shared_records.py). Its upper part is the number of a profile, which
says what the attempts of the run share. The launcher keeps a line until the run it is about has recorded it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from resile.executors.contract import Launch, Report
from resile.executors.local import recovery, wire
from resile.executors.local.executor import LocalExecutor
from resile.executors.local.recovery import Key
from resile.executors.local.segments import SegmentReader
from resile.executors.local.shared_records import narrow
from resile.executors.local.spool import SUFFIX


class ServerExecutor(LocalExecutor):
    """The executor of commands of all runs; see the Executor contract for the methods that all have."""

    # Frames about profiles, which go with the next attempts.
    _unsent: list[bytes]

    def _configure(self) -> None:
        self._unsent = []
        super()._configure()

    def start(self, launches: Sequence[Launch]) -> None:
        """Queue attempts, after what is new about their profiles."""
        if self._socket is not None and self._unsent:
            self._send(b"".join(self._unsent))
            self._unsent.clear()
        super().start(launches)

    def define(
        self,
        profile: int,
        *,
        fence: str,
        folder: str,
        directory: bytes,
        secrets: Sequence[bytes],
        env: Mapping[bytes, bytes],
    ) -> None:
        """Define what the attempts share whose jobs have this number above their own: `folder` is their epoch's."""
        segments = os.path.join(os.path.abspath(folder), wire.FOLDER)
        pairs = [name + b"=" + value for name, value in env.items()]
        frame = wire.profile_frame(profile, os.fsencode(fence), os.fsencode(segments), directory, secrets, pairs)
        self._profiles[profile] = frame
        self._epoch_folders[profile] = folder
        self._send_soon(frame)

    def know_folder(self, profile: int, folder: str) -> None:
        """Know where the output is of attempts that an earlier engine started with this profile."""
        self._epoch_folders[profile] = folder

    def forget(self, profile: int) -> None:
        """Start no attempt with this profile any more."""
        self._epoch_folders.pop(profile, None)
        if self._profiles.pop(profile, None) is not None:
            self._send_soon(wire.forget_frame(profile))

    def _output_of(self, job: int) -> SegmentReader:
        folder = self._epoch_folders.get(narrow(job)[0])
        return self if folder is None else SegmentReader(folder)

    def _send_soon(self, frame: bytes) -> None:
        # The next launcher gets the profiles when it is configured.
        if self._socket is not None:
            self._unsent.append(frame)

    @property
    def reported_bytes(self) -> int:
        """How much of what the launcher sent `reports` has returned so far."""
        return self._reported

    def spooled_keys(self) -> set[tuple[int, int]]:
        """The attempts of earlier engines for which nothing has asked yet."""
        return set(self._spooled)

    def has_attempts(self) -> bool:
        """Are there attempts that run, that have reports to read, or that earlier engines left and no run asked for?"""
        return bool(self._ours or self._ready or self._spooled)

    def leave(self, keys: set[Key]) -> None:
        """Give these attempts up, because the engine of their run does: the next one finds them again.

        The spool has what the launcher said of them, also where it was passed on and not recorded.
        """
        self._receive()
        for key in keys:
            self._queued -= self._ours.pop(key, None) is False
            self._start_index.pop(key, None)
        self._ready = [None if item and _key_of(item) in keys else item for item in self._ready]
        for path in (*self._dead, os.path.join(self._folder, self._token + SUFFIX)):
            author, lines = recovery.read_spool(path)
            if author is not None:
                found: dict[Key, recovery.SpooledAttempt] = {}
                recovery.fold(lines, author, found)
                self._spooled |= {key: spooled for key, spooled in found.items() if key in keys}

    def drop_spooled(self, jobs: set[int]) -> None:
        """Forget what earlier engines left of these jobs: it is recorded, or another engine has it."""
        self._spooled = {key: spooled for key, spooled in self._spooled.items() if key[0] not in jobs}

    def acknowledge_to(self, reported_bytes: int) -> None:
        """Note that the runs have recorded the first so many bytes of what the launcher sent.

        While there are records of earlier engines for which nothing has asked yet, the launcher must keep all lines.
        """
        if not self._spooled:
            self._acknowledge_to(min(reported_bytes, self._reported))


def _key_of(said: list[bytes] | Report) -> Key:
    """The attempt that a line of the launcher, or a report, is about."""
    return wire.decode_attempt(said) if isinstance(said, list) else (said.job, said.attempt)
