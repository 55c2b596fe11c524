"""`resile migrate flow.py`: the native file calls the same functions with the same arguments, and ends the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from resile.commands.load import compile_workflow
from resile.commands.migrate import migrate
from resile.dialects.native.writer.compare import differences

FLOW = """
from pathlib import Path
from resile import Workflow, step

class Busy(OSError):
    pass

class Pair:
    def __init__(self, a):
        self.a = a

@step
def numbers(count):
    return list(range(count))

@step(retry={"max": 2, "backoff": "10ms"}, timeout="5s")
def square(number, *, pair=None):
    return number * number + pair.a

@step(rules=[{"types": [Busy], "max_retries": 2}], on_failure={"fail_workflow": False})
def count(path, word):
    with open(path, "a") as file:
        file.write(word)
    if len(Path(path).read_text()) < 2:
        raise Busy("busy: ${x}")
    return Pair(3)

@step(on_failure=True, resources={"cpus": 1})
def total(squares, more):
    return sum(squares) + more["pairs"][0].a

@step(when="${steps.total.output} > 1", needs=total, critical=True, on_success={"shell": "true"}, grace="1s")
def last():
    return "last"

@step(on_failure={"shell": 'test "${error.kind}" = exit', "strategy": "fallback"})
def broken():
    raise ValueError("no\\nway")

with Workflow("all", inputs={"count": 4}, max_parallel=2, max_loops=3, grace="2s", workers=WORKERS) as flow:
    squares = square.map(numbers(flow.input("count")), pair=Pair(3), error_policy={"max_failures": 2})
    pair = count(PATH, "x")
    total(squares, {"pairs": [pair, "${inputs.count}"], "text": "a: #\\n"})
    last()
    broken().after(pair)
"""


def resile(folder: Path, *words: str) -> dict[str, Any]:
    """The document that a command prints."""
    env = {**os.environ, "RESILE_DB": str(folder / "r.db")}
    argv = [sys.executable, "-m", "resile.cli.main", *words, "--json"]
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, check=False, timeout=60)
    assert done.stdout, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def came_to(document: dict[str, Any]) -> tuple[Any, ...]:
    """What a run came to, without times and places."""
    jobs = sorted((job["scope"], job["step"], job["status"], job["attempts"]) for job in document["jobs"])
    routes = sorted((route["step"], route["action"], route["target"] or "") for route in document["routes"])
    return document["status"], document["steps"], jobs, routes, document["first_failure"], document["outputs"]


@pytest.mark.parametrize("folder", [".", "elsewhere"])
def test_the_native_file_does_the_same(tmp_path: Path, workers: str, folder: str) -> None:
    """Both files have the same model, and their runs the same jobs, attempts, routes, results and first failure."""
    effects = tmp_path / "effects"
    (tmp_path / folder).mkdir(exist_ok=True)
    source, target = tmp_path / "flow.py", tmp_path / folder / "flow.yaml"
    source.write_text(FLOW.replace("WORKERS", repr(workers)).replace("PATH", repr(str(effects))))
    migrate(str(source), str(target))
    assert str(tmp_path) not in target.read_text().replace(str(effects), "")
    one, other = compile_workflow(str(source)), compile_workflow(str(target))
    found = list(differences(one, other))
    assert [each.path for each in found if folder == "." or not each.path.endswith(".file")] == []
    documents = []
    for file in (source, target):
        documents.append(resile(tmp_path, "run", str(file)))
        assert effects.read_text() == "xx"
        effects.unlink()
    assert documents[0]["status"] == "completed"
    assert came_to(documents[0]) == came_to(documents[1])
    assert (documents[0]["dialect"], documents[1]["dialect"]) == ("python", "native")
