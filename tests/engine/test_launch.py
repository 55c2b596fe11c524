"""The Performer by itself: what an order to start becomes for the executor."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from resile.engine.actions import git
from resile.engine.launch import ARGUMENT_BYTES_MAX, CALLS, HEAD, SCRIPTS
from resile.model.builtin_actions import Log
from resile.model.failure import Failure, Outcome
from resile.model.workflow import Agent, Capture, Noop, Shell, Step, Validate, WriteFile
from tests.core.world import flow
from tests.engine.parts import Parts, parts_of


def test_plain_words_run_without_a_shell(tmp_path: Path) -> None:
    """A command of plain words is their argv, with the shell to fall back on."""
    launch = parts_of(tmp_path, Shell("echo a 'b c'")).launch()
    assert launch.argv == (b"echo", b"a", b"b c")
    assert launch.fallback == (b"sh", b"-c", b"echo a 'b c'")


@pytest.mark.parametrize("action", [Shell("echo $HOME | wc"), Validate("echo $HOME | wc")])
def test_what_only_a_shell_understands_runs_in_one(tmp_path: Path, action: Shell | Validate) -> None:
    """Variables and pipes need the shell, and there is nothing to fall back on."""
    launch = parts_of(tmp_path, action).launch()
    assert (launch.argv, launch.fallback) == ((b"sh", b"-c", b"echo $HOME | wc"), ())


def test_another_shell_is_always_used(tmp_path: Path) -> None:
    """Where the file names a program, plain words run in it too."""
    assert parts_of(tmp_path, Shell("echo a", program="bash")).launch().argv == (b"bash", b"-c", b"echo a")


def test_a_command_too_long_for_an_argument_is_a_file(tmp_path: Path) -> None:
    """Beyond 128 KiB the shell reads the command from a file that only its owner can read."""
    command = f": {'x' * ARGUMENT_BYTES_MAX}"
    launch = parts_of(tmp_path, Shell(command)).launch()
    path = tmp_path / "scripts" / "job_j1_r1_a1.sh"
    assert launch.argv == (b"sh", os.fsencode(path))
    assert (path.read_text(), path.stat().st_mode & 0o777) == (command, 0o600)


def test_the_longest_argument_is_that_of_the_system() -> None:
    """Linux takes an argument of this length and refuses a longer one."""
    assert subprocess.run(["true", "x" * ARGUMENT_BYTES_MAX]).returncode == 0
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["true", "x" * (ARGUMENT_BYTES_MAX + 1)])


def test_standard_input_is_a_file_that_the_command_reads(tmp_path: Path) -> None:
    """The text is rendered into a file, and the command runs with it as standard input."""
    parts = Parts(flow(Step(name="a", action=Shell("cat", stdin="to ${inputs.who}"))), tmp_path, who="you")
    path = tmp_path / "scripts" / "job_j1_r1_a1.stdin"
    launch = parts.launch()
    assert launch.argv == (b"sh", b"-c", b'exec "$@" < "$0"', os.fsencode(path), b"sh", b"-c", b"cat")
    assert path.read_text() == "to you"


def test_a_value_that_is_missing_fails_the_attempt_before_it_runs(tmp_path: Path) -> None:
    """A reference to a value that its step has not captured yet is a contract failure, and nothing is launched."""
    uses = Step(name="a", action=Shell("echo ${x.y}"))
    outcome = Parts(flow(uses, Step(name="b", action=Shell("true"), capture=(Capture("x"),))), tmp_path).outcome()
    message = "`x` has no value: 'b' captures it and has not given one"
    assert outcome == Outcome(failure=Failure("contract", message, signature="contract: value refused"))


def test_a_step_that_does_nothing_has_its_outcome_at_once(tmp_path: Path) -> None:
    """Nothing is launched for it."""
    assert parts_of(tmp_path, Noop()).outcome() == Outcome(exit_code=0)


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    """Folders on the way are made, the mode is the step's, and no part of it is left beside it."""
    outcome = parts_of(tmp_path, WriteFile("inner/file", "text\n", 0o600)).outcome()
    assert outcome == Outcome(exit_code=0)
    assert [path.name for path in (tmp_path / "inner").iterdir()] == ["file"]
    assert ((tmp_path / "inner/file").read_text(), (tmp_path / "inner/file").stat().st_mode & 0o777) == (
        "text\n",
        0o600,
    )


def test_a_file_that_can_not_be_written_fails_the_attempt(tmp_path: Path) -> None:
    """The message names the file and the reason."""
    (tmp_path / "inner").write_text("")
    message = f"can't write {tmp_path}/inner/file: File exists"
    failure = Failure("exit", message, 1, signature="write_file: File exists")
    assert parts_of(tmp_path, WriteFile("inner/file", "text\n")).outcome() == Outcome(1, failure)


def test_a_log_step_prints_its_text_behind_its_level(tmp_path: Path) -> None:
    """The text is in a file that `cat` prints; `info` is not said."""
    path = tmp_path / "scripts" / "job_j1_r1_a1.text"
    assert parts_of(tmp_path, Log("all well", "warn")).launch().argv == (b"cat", os.fsencode(path))
    assert path.read_text() == "[warn] all well\n"
    parts_of(tmp_path, Log("all well", "info")).launch()
    assert path.read_text() == "all well\n"


def test_an_agent_gets_its_prompt_as_an_argument_or_on_standard_input(tmp_path: Path) -> None:
    """As the file says, and always on standard input where it is too long for an argument."""
    command = ("agent", "-p")
    path = tmp_path / "scripts" / "job_j1_r1_a1.prompt"
    read = (b"sh", b"-c", b'exec "$@" < "$0"', os.fsencode(path), b"agent", b"-p")
    assert parts_of(tmp_path, Agent("do it", command)).launch().argv == (b"agent", b"-p", b"do it")
    assert parts_of(tmp_path, Agent("do it", command, "stdin")).launch().argv == read
    assert path.read_text() == "do it"
    assert parts_of(tmp_path, Agent("x" * (ARGUMENT_BYTES_MAX + 1), command)).launch().argv == read


def test_an_attempt_knows_its_job_its_place_and_its_limits(tmp_path: Path) -> None:
    """Environment, directory, timeout and grace time of the launch are those of the step."""
    keys = {"env": {"NAME": "value"}, "working_dir": "inner", "timeout_seconds": 3.0, "grace_seconds": 0.5}
    launch = parts_of(tmp_path, Shell("true"), **keys).launch(gpus=(1, 0))
    assert (launch.job, launch.attempt, launch.timeout_seconds, launch.grace_seconds) == (1, 1, 3.0, 0.5)
    assert launch.cwd == os.fsencode(tmp_path / "inner")
    assert launch.env == (
        (b"RESILE_JOB_ID", b"1"),
        (b"RESILE_JOB_NAME", b"a"),
        (b"RESILE_ATTEMPT_ID", b"1"),
        (b"CUDA_VISIBLE_DEVICES", b"1,0"),
        (b"NAME", b"value"),
    )


def test_an_attempt_in_the_run_s_directory_names_none(tmp_path: Path) -> None:
    """The launcher is there already."""
    assert parts_of(tmp_path, Shell("true")).launch().cwd == b""


def test_a_variable_too_long_for_the_system_fails_the_attempt(tmp_path: Path) -> None:
    """Linux limits each variable as it limits an argument."""
    outcome = parts_of(tmp_path, Shell("true"), env={"BIG": "x" * ARGUMENT_BYTES_MAX}).outcome()
    assert outcome.failure is not None
    expected = (
        f"env BIG has {ARGUMENT_BYTES_MAX} bytes, an environment variable takes {ARGUMENT_BYTES_MAX}: "
        "`stdin` and `write_file` take any size"
    )
    assert (outcome.failure.kind, outcome.failure.message) == ("contract", expected)


def test_a_commit_is_required_where_there_is_a_repository_only(tmp_path: Path) -> None:
    """Outside of one the attempt fails before it runs."""
    outcome = parts_of(tmp_path, Shell("true"), commit_required=True).outcome()
    assert outcome.failure is not None
    assert outcome.failure.message == "commit_required: the step does not run inside a git repository"


def test_a_commit_that_git_does_not_tell_of_fails_the_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the step and after it: no commit is taken for made because git is stuck, missing, or has no repository."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    parts = parts_of(tmp_path, Shell("true"), commit_required=True)
    parts.launch()
    assert parts.failure().message == "commit_required: the step made no commit"
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(git, "GIT_SECONDS_MAX", 0.2)
    messages = []
    with monkeypatch.context() as path:
        for folder in (program.parent, tmp_path):
            path.setenv("PATH", f"{folder}:/bin" if folder == program.parent else str(folder))
            refused = parts.outcome().failure
            assert refused is not None
            messages += [refused.message, parts.failure().message]
    monkeypatch.undo()
    (tmp_path / ".git").rename(tmp_path / "away")
    messages.append(parts.failure().message)
    assert messages == [
        *["commit_required: git gave no answer within 0.2 s"] * 2,
        *["commit_required: git can't be run: No such file or directory"] * 2,
        "commit_required: the step does not run inside a git repository",
    ]


def test_files_with_values_that_an_earlier_engine_left_are_known(tmp_path: Path) -> None:
    """By attempt, to be removed with it; the commit that a step began from is no such file, and others are not ours."""
    for name in ("job_j1_r2_a3.sh", "job_j1_r2_a3.input0", f"job_j1_r2_a3.{HEAD}", "notes.sh"):
        path = tmp_path / SCRIPTS / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / CALLS).mkdir(exist_ok=True)
    (tmp_path / CALLS / "call_j4_a1").touch()
    performer = parts_of(tmp_path, Shell("true")).performer
    found = {key: sorted(os.path.basename(path) for path in paths) for key, paths in performer.files.items()}
    assert found == {(1, 3): ["job_j1_r2_a3.input0", "job_j1_r2_a3.sh"], (4, 1): ["call_j4_a1"]}
    performer.remove_files(1, 3)
    assert sorted(os.listdir(tmp_path / SCRIPTS)) == [f"job_j1_r2_a3.{HEAD}", "notes.sh"]
