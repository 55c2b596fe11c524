"""Power cuts: copies of the disk while a run goes on, each mounted and resumed as after another boot.

A copy of a loop device's image has what the device has seen, not what the kernel still held in memory.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.executors.local.driver import wait_for
from tests.runs.durability.harness import times
from tests.runs.durability.test_boot import OTHER_BOOT

CUTS = times("RESILE_CUTS", 50)
CUTS_OF_ONE_RUN = 10
IMAGE_BYTES = 24 * 1024 * 1024
SECTOR_STATS = Path("/sys/block")
# Every third step must not run again after a loss; each prints what can be told from the output of all others.
STEPS = 40
FLOW = "resile: 1\nname: cut\nmax_parallel: 3\nsteps:\n" + "".join(
    f"  s{n}:\n    shell: echo s{n} >> $EFFECTS && sleep 0.0{n % 3} && echo out-{n}\n"
    + (f"    needs: [s{n // 2}]\n" if n else "")
    + ("    rerun_on_loss: never\n" if n % 3 == 0 else "")
    for n in range(STEPS)
)
NAMES = {f"s{n}" for n in range(STEPS)}
NEVER = {f"s{n}" for n in range(0, STEPS, 3)}


class Disk:
    """A file system of its own on a loop device, mounted in a folder."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.image, self.folder = image, folder
        with image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-b", "1024", "-J", "size=4", str(image)], check=True)
        found = subprocess.run(["losetup", "-f", "--show", str(image)], check=True, capture_output=True, text=True)
        self.device = found.stdout.strip()

    def is_quiet_since(self, before: list[int]) -> bool:
        """Has the device taken no write since these numbers, and is none on its way?"""
        now = self.writes()
        return now == before and now[1] == 0

    def writes(self) -> list[int]:
        """How many writes the device has taken, and how many are on their way."""
        fields = (SECTOR_STATS / Path(self.device).name / "stat").read_text().split()
        return [int(fields[4]), int(fields[8])]

    def copy(self, to: Path) -> None:
        """Copy what the device has at one moment."""
        while True:
            before = self.writes()
            copy_sparse(self.image, to)
            if self.is_quiet_since(before):
                return


def copy_sparse(source: Path, target: Path) -> None:
    """Copy the parts of a file that are not holes."""
    with source.open("rb") as read, target.open("wb") as write:
        size, place = source.stat().st_size, 0
        write.truncate(size)
        while place < size:
            try:
                place = os.lseek(read.fileno(), place, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(read.fileno(), place, os.SEEK_HOLE)
            os.pwrite(write.fileno(), os.pread(read.fileno(), end - place, place), place)
            place = end


@contextmanager
def mounted(folder: Path) -> Iterator[Disk]:
    """A new disk, mounted in `folder/disk`."""
    place = folder / "disk"
    place.mkdir(parents=True)
    disk = Disk(folder / "image", place)
    try:
        subprocess.run(["mount", disk.device, str(place)], check=True)
        try:
            yield disk
        finally:
            subprocess.run(["umount", "-l", str(place)], check=True)
    finally:
        subprocess.run(["losetup", "-d", disk.device], check=True)


class Cut:
    """One copy of a disk, and the effects that steps had before it was made."""

    def __init__(self, disk: Disk, image: Path, effects: Path) -> None:
        self.disk, self.image = disk, image
        self.before = set(effects.read_text().split())
        disk.copy(image)
        self.effects = image.with_suffix(".effects")
        self.effects.touch()

    def resume(self) -> tuple[dict[str, Any], dict[str, Any], str, list[dict[str, Any]]]:
        """Mount the copy where the disk was, on a machine on which nothing of the run is alive; look, resume, look.

        Returns the documents of `status` before and of `resume`, and the output of the steps and the events afterwards.
        """
        results = [self.image.with_suffix(f".{name}") for name in ("status", "resume", "logs", "events")]
        script = f"mount -o loop {self.image} {self.disk.folder} && cd {self.disk.folder} || exit 9\n"
        commands = ("status 1 --json", "resume 1 --json", "logs 1", "events list 1 --json")
        for words, result in zip(commands, results, strict=True):
            script += f'"$@" {words} > {result}\n'
        argv = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh"]
        argv += [sys.executable, "-c", OTHER_BOOT]
        env = environment(self.disk, self.effects, "second")
        done = subprocess.run(argv, env=env, capture_output=True, check=False)
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        before, after, logs, events = (result.read_text() for result in results)
        return json.loads(before), json.loads(after), logs, [json.loads(line) for line in events.splitlines()]

    def check(self) -> str:
        """Resume the copy, and check that nothing was done twice that must not be; how it ended."""
        looked, document, logs, events = self.resume()
        again = Counter(self.effects.read_text().split())
        known = {job["step"] for job in looked["jobs"] if job["status"] == "completed"} & NAMES
        jobs = {job["step"]: job for job in document["jobs"] if job["step"] in NAMES}
        assert [name for name in again if again[name] > 1] == []
        assert again.keys() & known == set()
        assert again.keys() & self.before & NEVER == set()
        assert {name for name in again.keys() & self.before if jobs[name]["attempts"] < 2} == set()
        lost = {event["step"] for event in events if event["type"] == "attempt_lost"}
        assert again.keys() & self.before <= lost
        begun = Counter((event["job"], event["attempt"]) for event in events if event["type"] == "attempt_started")
        assert set(begun.values()) == {1}
        parked = {name for name, job in jobs.items() if job["status"] == "pending_failed"}
        assert parked <= NEVER
        assert document["status"] == ("parked" if parked else "completed")
        assert [name for name in known if jobs[name]["output_lost"]] == []
        assert {f"out-{name[1:]}" for name in known | again.keys()} <= set(logs.splitlines())
        return str(document["status"])


def environment(disk: Disk, effects: Path, boot: str) -> dict[str, str]:
    """The variables of a command whose database and output are on the disk."""
    place = {"RESILE_DB": str(disk.folder / "r.db"), "RESILE_OUTPUT_DIR": str(disk.folder / "out")}
    return {**os.environ, **place, "EFFECTS": str(effects), "BOOT": boot}


def cuts_of_one_run(folder: Path, chance: random.Random) -> Iterator[Cut]:
    """Copies of the disk at random moments of one run, from the first effect of a step on."""
    with mounted(folder) as disk:
        (disk.folder / "flow.yaml").write_text(FLOW)
        os.sync()
        effects = folder / "effects"
        effects.touch()
        argv = [sys.executable, "-c", OTHER_BOOT, "run", "flow.yaml", "--json"]
        env = environment(disk, effects, "first")
        cuts: list[Cut] = []
        with subprocess.Popen(argv, cwd=disk.folder, env=env, stdout=subprocess.DEVNULL) as run:
            wait_for(effects.read_text)
            while run.poll() is None and len(cuts) < CUTS_OF_ONE_RUN:
                try:
                    run.wait(timeout=chance.uniform(0.0, 0.12))
                except subprocess.TimeoutExpired:
                    cuts.append(Cut(disk, folder / f"cut{len(cuts)}", effects))
            assert run.wait() == 0
        yield from cuts


@pytest.mark.slow
def test_after_a_power_cut_nothing_is_done_twice_that_was_known(tmp_path: Path) -> None:
    """Fifty cuts: completed steps keep their results and output, lost ones say so, `rerun_on_loss: never` holds."""
    if os.geteuid() or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        assert os.environ.get("CI") != "true", "CI must run as root with mounts"
        pytest.skip("only root may mount a loop device")
    chance = random.Random(13)
    ends: Counter[str] = Counter()
    round_number = 0
    while ends.total() < CUTS:
        for cut in cuts_of_one_run(tmp_path / str(round_number), chance):
            ends[cut.check()] += 1
            cut.image.unlink()
        round_number += 1
    assert ends["parked"]
