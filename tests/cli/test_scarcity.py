"""Runs where the system gives too few descriptors."""

from __future__ import annotations

import resource
import subprocess

import pytest

from tests.cli.program import Program

STEPS = 400
# Each step prints its limit, and waits until as many steps run as there are slots.
STEP = "ulimit -Sn; echo >> began; test $(wc -l < began) -lt $SLOTS || touch all; until test -e all; do sleep 0.2; done"
WIDE = "resile: 1\nname: wide\nmax_parallel: 400\nsteps:\n" + "".join(
    f"  s{number}: {{shell: '{STEP}'}}\n" for number in range(STEPS)
)


def limited(program: Program, limit: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command under a limit of open files: an argument of `ulimit`."""
    argv = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *program.argv, *words]
    return subprocess.run(
        argv, cwd=program.folder, env=program.env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=100
    )


@pytest.mark.slow
@pytest.mark.parametrize("limit", [64, 100, 256, 1024, 4096])
@pytest.mark.parametrize("option", ["-Sn", "-n"])
def test_many_steps_at_once_under_a_low_limit(program: Program, option: str, limit: int) -> None:
    """All of 400 steps at once end with the caller's soft limit, and a hard limit that is too low is named once."""
    hard = limit if option == "-n" else resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    slots = min(STEPS, {64: 4, 100: 9, 256: 28, 1024: 124}.get(hard, STEPS))
    program.env["SLOTS"] = str(slots)
    done = limited(program, f"{option} {limit}", "run", program.write(WIDE))
    assert done.returncode == 0, done.stderr
    assert f"{STEPS} steps: {STEPS} completed" in done.stdout
    lines = [line for path in program.folder.rglob("launcher/*.o") for line in path.read_text().splitlines()]
    assert lines == [str(limit)] * STEPS
    said = f"resile: at most {slots} steps run at once, not 400: only {limit} files may be open (`ulimit -Hn`)"
    assert [line for line in done.stderr.splitlines() if "at once" in line] == [said] * (slots < STEPS)


@pytest.mark.parametrize("limit", [10, 16, 47])
def test_too_few_descriptors_to_start(program: Program, limit: int) -> None:
    """With too few descriptors to start at all `run` exits 2, names the limit and stores nothing."""
    done = limited(program, f"-n {limit}", "run", program.write(WIDE))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"resile: error: only {limit} files may be open at once (`ulimit -n`), and a run needs 48",
        "  hint: raise the limit: `ulimit -n 1024`",
    ]
    assert not (program.folder / "resile.db").exists()
