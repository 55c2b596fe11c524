"""The local executor of a server: one launcher for the attempts of many runs.

Jobs have numbers that are unique over all runs (shared_records.py). The upper bits of such a number are the number of a
profile, which has the settings that the run's attempts share. The launcher keeps a line until its run has recorded it.
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
    """Executes the commands of all runs of a server; see the Executor contract for the common methods."""

    # Frames about profiles, which `start` sends before the next attempts.
    _unsent: list[bytes]

    def _configure(self) -> None:
        self._unsent = []
        super()._configure()

    def start(self, launches: Sequence[Launch]) -> None:
        """Send new and forgotten profiles to the launcher, then queue attempts."""
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
        """Define a profile: the settings of attempts whose job numbers have it; `folder` is their epoch's folder."""
        segments = os.path.join(os.path.abspath(folder), wire.FOLDER)
        pairs = [name + b"=" + value for name, value in env.items()]
        frame = wire.profile_frame(profile, os.fsencode(fence), os.fsencode(segments), directory, secrets, pairs)
        self._profiles[profile] = frame
        self._epoch_folders[profile] = folder
        self._send_soon(frame)

    def know_folder(self, profile: int, folder: str) -> None:
        """Note the folder with the output of attempts that an earlier engine started with this profile."""
        self._epoch_folders[profile] = folder

    def forget(self, profile: int) -> None:
        """Drop a profile: no attempt with it will start any more."""
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
        """The bytes of the launcher's lines that `reports` has handled so far."""
        return self._reported

    def spooled_keys(self) -> set[tuple[int, int]]:
        """The attempts of earlier engines that no run has asked for yet."""
        return set(self._spooled)

    def has_attempts(self) -> bool:
        """Does an attempt run, wait with a report, or is there a record that no run has asked for?"""
        return bool(self._ours or self._ready or self._spooled)

    def leave(self, keys: set[Key]) -> None:
        """Give these attempts up because the engine of their run stops; the run's next engine finds them again.

        This reads their records from the spool, which also has reports that the engine took and did not record.
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
        """Forget the records of these jobs, because an engine has recorded them or another engine has the run."""
        self._spooled = {key: spooled for key, spooled in self._spooled.items() if key[0] not in jobs}

    def acknowledge_to(self, reported_bytes: int) -> None:
        """Note that the runs have recorded the first `reported_bytes` of the launcher's lines.

        While there are records of earlier engines that no run has asked for, the launcher must keep all lines.
        """
        if not self._spooled:
            self._acknowledge_to(min(reported_bytes, self._reported))


def _key_of(said: list[bytes] | Report) -> Key:
    """The attempt that a line of the launcher, or a report, is about."""
    return wire.decode_attempt(said) if isinstance(said, list) else (said.job, said.attempt)
