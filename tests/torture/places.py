"""Where tortured runs live: a plain folder, or a disk of its own that can be full and can lose its power."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

DISK_BYTES = 96 * 1024 * 1024


class Place:
    """A plain folder. `folder` holds the databases and workflows; `outside` what no disturbance can touch."""

    can_be_full = can_be_cut = False

    def __init__(self, root: Path) -> None:
        self.outside = root / "outside"
        self.outside.mkdir(parents=True)
        self.folder = root / "inside"
        self.folder.mkdir()

    def command(self, words: list[str]) -> list[str]:
        """What starts a program in this place."""
        return words

    def close(self) -> None:
        """Leave nothing behind but files."""


class Disk(Place):
    """An ext4 file system on a loop device. Programs see a boot id that changes with every power cut."""

    can_be_full = can_be_cut = True

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.image = root / "disk-0"
        self.cuts = 0
        self.boot = root / "outside" / "boot"
        with self.image.open("wb") as file:
            file.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "root_owner", str(self.image)], check=True)
        self._mount()

    def command(self, words: list[str]) -> list[str]:
        """A program in a mount namespace of its own, in which the boot id is the one of this place."""
        script = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, str(self.boot), *words]

    def cut_power(self, kill_all: Callable[[int], None]) -> None:
        """Every process dies, and the disk has what it was given before; the page cache is lost."""
        kill_all(signal.SIGSTOP)
        self.cuts += 1
        copy = self.image.with_name(f"disk-{self.cuts}")
        before = self._writes()
        # The kernel may write back old pages while the image is copied. Then the copy is of no single moment.
        while True:
            shutil.copyfile(self.image, copy)
            after = self._writes()
            if after == before:
                break
            before = after
        kill_all(signal.SIGKILL)
        self._unmount()
        self.image.unlink()
        self.image = copy
        self._mount()

    def fill(self) -> Path:
        """Use up the disk; return the file that does."""
        file = self.folder / "ballast"
        with file.open("wb", buffering=0) as ballast:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        ballast.write(b"x" * size)
                except OSError:
                    continue
        return file

    def close(self) -> None:
        """Unmount the disk."""
        self._unmount()

    def _mount(self) -> None:
        self.boot.write_text(f"{uuid.uuid4()}\n")
        subprocess.run(["mount", "-o", "loop", str(self.image), str(self.folder)], check=True)

    def _unmount(self) -> None:
        subprocess.run(["umount", str(self.folder)], check=True)

    def _writes(self) -> str:
        """What the kernel counts of the device."""
        device = os.stat(self.folder).st_dev
        return Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text()


def can_mount() -> bool:
    """May this process make loop devices?"""
    return os.geteuid() == 0 and Path("/dev/loop-control").exists() and shutil.which("mkfs.ext4") is not None
