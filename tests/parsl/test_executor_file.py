"""The file of `--executor`: what it says becomes settings, and what it can't mean is refused with its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from resile.commands.load import compile_workflow
from resile.commands.start.on_cluster import cluster_capacity, place_on_cluster, shapes_of
from resile.dialects.compile import compile_text
from resile.dialects.executor_file import read_executor_file
from resile.dialects.native.writer.document import emit
from resile.errors import ResileError
from resile.executors.contract import Share
from resile.executors.parsl.pools import shape_of
from resile.model.executor import ExecutorSettings

WHOLE = """
[executor]
kind = "parsl"
provider = "slurm"
account = "proj"
partition = "short"
walltime = "01:30:00"
nodes_per_block = 2
blocks_min = 1
blocks_max = 4
workers_per_node = 3
idle = "2m"
queue_limit = "1h"
grace = "30s"
directory = "/scratch/proj"
"""


def written(folder: Path, text: str) -> str:
    """A file with this text; its path."""
    path = folder / "cluster.toml"
    path.write_text(text)
    return str(path)


def test_every_key_has_a_meaning(tmp_path: Path) -> None:
    """A file with all keys becomes settings; durations are seconds."""
    assert read_executor_file(written(tmp_path, WHOLE)) == ExecutorSettings(
        directory="/scratch/proj",
        provider="slurm",
        account="proj",
        partition="short",
        walltime_seconds=5400.0,
        nodes_per_block=2,
        blocks_min=1,
        blocks_max=4,
        workers_per_node=3,
        idle_seconds=120.0,
        queue_limit_seconds=3600.0,
        grace_seconds=30.0,
    )


@pytest.mark.parametrize(
    ("text", "line", "column", "hint"),
    [
        ('[executor]\nkind = "parsl"\ndirectory = "/x"\npartitoin = "a"\n', 4, 1, "partition"),
        ('[executor]\nkind = "parsl"\ndirectory = "/x"\nprovider = "slrum"\n', 4, 1, "slurm"),
        ('[executor]\nkind = "parsl"\ndirectory = "/x"\nidle = "soon"\n', 4, 1, "30s"),
        ('[executor]\nkind = "parsl"\ndirectory = "/x"\naccount = "a b; c"\n', 4, 1, ""),
        ('[executor]\nkind = "parsl"\ndirectory = "/x"\nwalltime = "30s"\ngrace = "30s"\n', 5, 1, "a tenth"),
        ('[executor]\nkind = "parsl"\ndirectory = "/x"\nprovider = "flux"\n', 4, 1, "local, slurm, pbs, lsf"),
        ('[executor]\nkind = "parsl"\ndirectory = "/x"\nprovider = "kubernetes"\n', 4, 1, "local, slurm, pbs, lsf"),
        ('[executor]\nkind = "parsl"\ndirectory = "/x"\nnodes_per_block = 2\n', 4, 1, "blocks_max"),
        ('[executor]\nkind = "parsl"\ndirectory = "/x"\nprovider = "pbs"\nqos = "high"\n', 5, 1, "partition"),
        ('[executor]\nkind = "parsl"\ndirectory = 3\n', 3, 1, ""),
        ('[executor]\nkind = "parsl"\ndirectory = "/x"\nworker_init = true\n', 4, 1, ""),
        ('[executor]\nkind = "parsl"\n', 1, 2, "directory"),
        ('[executor]\ndirectory = "/x"\n', 1, 2, "parsl"),
        ('[executer]\nkind = "parsl"\n', 1, 2, "executor"),
        ('[executor]\nkind = "parsl\n', 2, 14, "TOML"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(tmp_path: Path, text: str, line: int, column: int, hint: str) -> None:
    """An error names the file, line and column, and what is meant."""
    path = written(tmp_path, text)
    with pytest.raises(ResileError) as refused:
        read_executor_file(path)
    assert refused.value.where == f"{path}:{line}:{column}"
    assert hint in refused.value.hint


def test_the_grace_fits_a_short_walltime(tmp_path: Path) -> None:
    """Without `grace` it is a minute, or a quarter of the walltime; a longer step has it beyond its limit."""
    text = '[executor]\nkind = "parsl"\nprovider = "slurm"\ndirectory = "/x"\nwalltime = "{}"\n'
    short = read_executor_file(written(tmp_path, text.format("00:01:00")))
    assert short.grace_seconds == 15.0
    assert read_executor_file(written(tmp_path, text.format("01:00:00"))).grace_seconds == 60.0
    assert shape_of(short, Share(), 60.0).walltime_seconds == 0.0
    assert shape_of(short, Share(), 61.0).walltime_seconds == 76.0


def test_a_native_file_says_the_same(tmp_path: Path) -> None:
    """`executor` in a native file means what the TOML file means, and is written back."""
    path = tmp_path / "flow.yaml"
    path.write_text(
        "resile: 1\nexecutor: {kind: parsl, directory: shared, walltime: '00:10:00', workers_per_node: 2}\n"
        "steps: [{name: a, shell: 'true'}]\n"
    )
    workflow = compile_workflow(str(path))
    assert workflow.executor == ExecutorSettings(directory="shared", walltime_seconds=600.0, workers_per_node=2)
    again = compile_text(emit(workflow).encode(), file="again.yaml", folder=str(tmp_path)).workflow
    assert again is not None
    assert again.executor == workflow.executor


def test_a_child_has_no_executor_of_its_own(tmp_path: Path) -> None:
    """Only the outermost file says where attempts run."""
    text = (
        "resile: 1\nsteps:\n  a:\n    workflow:\n      executor: {kind: parsl, directory: x}\n"
        "      steps: [{name: b, shell: 'true'}]\n"
    )
    found = compile_text(text.encode(), file="flow.yaml", folder=str(tmp_path))
    assert [(one.code, one.line) for one in found.diagnostics] == [("conflict", 5)]


def test_steps_of_different_shapes_have_pools_of_their_own(tmp_path: Path) -> None:
    """Equal requests share a pool; more than eight shapes are refused, and named."""
    steps = "".join(
        f"  s{number}: {{shell: 'true', resources: {{memory: {number % 9 + 1}g}}}}\n" for number in range(10)
    )
    path = tmp_path / "flow.yaml"
    path.write_text(f"resile: 1\nsteps:\n{steps}")
    workflow = compile_workflow(str(path))
    local = written(tmp_path, '[executor]\nkind = "parsl"\ndirectory = "d"\nworkers_per_node = 2\nblocks_max = 3\n')
    placed = place_on_cluster(workflow, local)
    assert len(shapes_of(placed)) == 1
    assert cluster_capacity(placed, None).parallel == 6


def test_more_than_eight_shapes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the shapes and their steps."""
    for name in ("sbatch",):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    steps = "".join(f"  s{number}: {{shell: 'true', resources: {{memory: {number + 1}g}}}}\n" for number in range(9))
    path = tmp_path / "flow.yaml"
    path.write_text(f"resile: 1\nsteps:\n{steps}")
    text = '[executor]\nkind = "parsl"\nprovider = "slurm"\ndirectory = "d"\n'
    with pytest.raises(ResileError) as refused:
        place_on_cluster(compile_workflow(str(path)), written(tmp_path, text))
    assert refused.value.code == "too-many-shapes"
    assert "9216 MiB (s8)" in refused.value.message


@pytest.mark.parametrize("directory", ["/x/a b", "/x/$HOME", "/x/`id`", "/x/it's", '/x/a"b', "/x/a\\b"])
def test_a_path_that_a_shell_changes_is_refused(tmp_path: Path, directory: str) -> None:
    """The script of a block has the path; blocks on this machine have no script of that kind."""
    path = tmp_path / "flow.yaml"
    path.write_text("resile: 1\nsteps: [{name: a, shell: 'true'}]\n")
    text = f"[executor]\nkind = 'parsl'\ndirectory = {json.dumps(directory)}\nprovider = "
    with pytest.raises(ResileError, match="such a path"):
        place_on_cluster(compile_workflow(str(path)), written(tmp_path, text + "'slurm'\n"))
    placed = place_on_cluster(compile_workflow(str(path)), written(tmp_path, text + "'local'\n"))
    assert placed.executor is not None
    assert placed.executor.directory == directory


@pytest.mark.parametrize(("provider", "command"), [("pbs", "qsub"), ("lsf", "bsub")])
def test_requests_that_are_not_passed_on_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str, command: str
) -> None:
    """Nothing is asked for in silence: the error names what is not passed on, and the steps."""
    (tmp_path / command).write_text("#!/bin/sh\n")
    (tmp_path / command).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    path = tmp_path / "flow.yaml"
    path.write_text("resile: 1\nsteps: {a: {shell: 'true', resources: {memory: 1g}}, b: {shell: 'true'}}\n")
    text = f'[executor]\nkind = "parsl"\nprovider = "{provider}"\ndirectory = "/d"\n'
    with pytest.raises(ResileError, match=r"no memory and no GPUs: 1024 MiB \(a\)\n"):
        place_on_cluster(compile_workflow(str(path)), written(tmp_path, text))
    path.write_text("resile: 1\nsteps: {a: {shell: 'true', resources: {cpus: 2}}}\n")
    assert place_on_cluster(compile_workflow(str(path)), written(tmp_path, text)).executor is not None


def test_without_parsl_the_command_that_installs_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the extra is missing nothing runs, and the hint has the command."""
    monkeypatch.setitem(sys.modules, "parsl", None)
    path = tmp_path / "flow.yaml"
    path.write_text("resile: 1\nsteps: [{name: a, shell: 'true'}]\n")
    text = '[executor]\nkind = "parsl"\ndirectory = "d"\n'
    with pytest.raises(ResileError) as refused:
        place_on_cluster(compile_workflow(str(path)), written(tmp_path, text))
    assert refused.value.code == "not-installed"
    assert "pip install 'resile[cluster]'" in refused.value.hint


@pytest.mark.parametrize("words", [("plain.yaml", "--executor", "cluster.toml"), ("own.yaml",)])
def test_without_parsl_run_ends_with_2_and_says_what_installs_it(tmp_path: Path, words: tuple[str, ...]) -> None:
    """The call ends with exit code 2, whether the option or the file asks for blocks, and no run is made."""
    (tmp_path / "cluster.toml").write_text("[executor]\nkind = 'parsl'\nprovider = 'local'\ndirectory = 'd'\n")
    (tmp_path / "plain.yaml").write_text("resile: 1\nsteps: {a: {shell: 'true'}}\n")
    own = "executor: {kind: parsl, provider: local, directory: d}\n"
    (tmp_path / "own.yaml").write_text(f"resile: 1\n{own}steps: {{a: {{shell: 'true'}}}}\n")
    without = "import sys; sys.modules['parsl'] = None; from resile.cli.main import main; sys.exit(main())"
    env = {**os.environ, "RESILE_DB": str(tmp_path / "resile.db")}
    argv = [sys.executable, "-c", without, "run", *words]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "resile: error: steps run on blocks of nodes through Parsl, which is not installed\n"
        "  hint: install it with: pip install 'resile[cluster]'\n"
    )
    assert not (tmp_path / "d").exists()
