"""Where runs are held: a folder of their own, and namespaces in which everything else can only be read.

A box is one folder for one run at a time, used by both versions in turn, so that both see the same paths:

    work/   a copy of the file's folder, where the run begins       tmp/    also /tmp
    home/   $HOME                                                   resile.db

With namespaces there is no network, every other file system is read-only, and no process outlives the run. Where a
kernel does not allow that, files of others are not run at all.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

# What a file of others may call; `claude` and `sleep` are of our own making.
HARMLESS = (
    *("[", "awk", "base64", "basename", "bash", "cat", "chmod", "cmp", "comm", "cp", "cut", "date", "diff"),
    *("dirname", "echo", "egrep", "env", "expr", "false", "find", "fgrep", "grep", "head", "hostname", "id", "jq"),
    *("join", "ls", "md5sum", "mkdir", "mktemp", "mv", "nproc", "paste", "printf", "pwd", "readlink", "realpath"),
    *("rev", "rm", "rmdir", "sed", "seq", "sh", "sha256sum", "sort", "split", "stat", "tac", "tail", "tee"),
    *("test", "touch", "tr", "true", "uname", "uniq", "wc", "which", "xargs", "yes"),
)
STUBS = {"claude": '#!/bin/sh\necho "$@"\n', "sleep": "#!/bin/sh\nexit 0\n"}
STUBS_OF_OURS = ("claude",)

ENTER = """
set -e
box=$1 cover=$2
shift 2
mount --bind "$box" "$box"
if [ "$cover" ]; then mount --bind "$box/tmp" /tmp; fi
mount -t tmpfs none /dev/shm
while read -r _ where _ options _; do
  case $where in "$box" | /tmp | /proc | /proc/* | /sys | /sys/* | /dev | /dev/*) continue ;; esac
  case ,$options, in *,ro,*) continue ;; esac
  mount -o remount,bind,ro "$where"
done < /proc/self/mounts
cd "$box/work"
PATH=$BOX_PATH
unset BOX_PATH
exec "$@"
"""
ADMINISTRATION = f"{os.defpath}{os.pathsep}/usr/sbin{os.pathsep}/sbin"
NAMESPACES = (
    "unshare",
    "--map-root-user",
    "--mount",
    "--net",
    "--pid",
    "--ipc",
    "--fork",
    "--kill-child",
    "--mount-proc",
)


class Box:
    """A folder for one run at a time."""

    def __init__(self, path: Path, programs: Path, *, is_closed: bool) -> None:
        self.path = path
        self._programs = programs
        self._is_closed = is_closed

    def fill(self, folder: Path) -> None:
        """Empty the box and put a copy of a folder into it."""
        shutil.rmtree(self.path, ignore_errors=True)
        for name in ("home", "tmp"):
            (self.path / name).mkdir(parents=True)
        shutil.copytree(folder, self.path / "work", symlinks=True)

    def environment(self, *, is_ours: bool) -> dict[str, str]:
        """All that a run knows of its surroundings."""
        path = f"{self._programs / 'ours'}{os.pathsep}{os.defpath}" if is_ours else str(self._programs / "others")
        return {
            "PATH": path,
            "HOME": str(self.path / "home"),
            "TMPDIR": str(self.path / "tmp"),
            "RESILE_DB": str(self.path / "resile.db"),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def call(self, argv: list[str], environment: dict[str, str], seconds_max: float) -> tuple[int | str, str]:
        """The exit code of a command in the box and what it prints; the code is a text where the time was over."""
        if self._is_closed:
            argv = [*self._entrance(), *argv]
            environment = {**environment, "PATH": ADMINISTRATION, "BOX_PATH": environment["PATH"]}
        process = subprocess.Popen(
            argv,
            cwd=self.path / "work",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            out, _ = process.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "timeout", ""
        return process.returncode, out.decode("utf-8", "replace")

    def _entrance(self) -> list[str]:
        """What stands before a command that is to run in namespaces; it must find `mount`, the command need not."""
        roots = (Path("/tmp"), Path("/tmp").resolve())
        needed = (Path(__file__).resolve(), Path(sys.executable), Path(sys.executable).resolve(), self.path)
        covers = not any(path.is_relative_to(root) for path in needed for root in roots)
        return [*NAMESPACES, "sh", "-c", ENTER, "sh", str(self.path), "yes" if covers else ""]


def stock(folder: Path) -> Path:
    """Make the two folders of programs: for our own files only stubs, for those of others all that there is."""
    for name in ("ours", "others"):
        (folder / name).mkdir(parents=True)
    for name, text in STUBS.items():
        for kind in ("ours", "others") if name in STUBS_OF_OURS else ("others",):
            (folder / kind / name).write_text(text)
            (folder / kind / name).chmod(0o755)
    for name in HARMLESS:
        found = shutil.which(name, path=os.defpath)
        if found:
            (folder / "others" / name).symlink_to(found)
    (folder / "others" / "python3").symlink_to(sys.executable)
    return folder


def can_close(folder: Path, programs: Path) -> bool:
    """Does this machine allow boxes that nothing gets out of? Tried by writing inside and outside of one."""
    box = Box(folder / "probe", programs, is_closed=True)
    box.fill(programs)
    outside = folder / "outside"
    probe = 'echo in > inside; echo out > "$1"; echo $?'
    try:
        code, out = box.call(["/bin/sh", "-c", probe, "sh", str(outside)], box.environment(is_ours=True), 10.0)
    except OSError:
        return False
    wrote = (box.path / "work" / "inside").exists(), outside.exists()
    return code == 0 and out.strip() not in ("", "0") and wrote == (True, False)
