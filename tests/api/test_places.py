"""Where functions can stand: a script, a module, a package's module, or a program that was typed in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FLOW = """
from resile import Workflow, run, step

class Odd(Exception):
    pass

class Pair:
    def __init__(self, a):
        self.a = a

@step(rules=[{"types": [Odd], "max_retries": 1}], on_failure=True)
def fail():
    raise Odd("odd")

@step
def pair(other):
    return Pair(other.a + 1)

with Workflow("t", workers=WORKERS) as flow:
    fail()
    pairs = pair.map([Pair(1), Pair(2)])

if __name__ == "__main__":
    done = run(flow)
    print([found.a for found in done.result(pairs)], all(type(found) is Pair for found in done.result(pairs)))
    print(done.document["first_failure"]["message"])
    print([job["attempts"] for job in done.document["jobs"] if job["step"] == "fail"])
"""


def python(folder: Path, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """A Python program in a folder."""
    env = {**os.environ, "RESILE_DB": str(folder / "r.db"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=env,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def resile(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line in a folder."""
    return python(folder, "-m", "resile.cli.main", *words)


def test_a_script_and_a_module_of_a_package(tmp_path: Path, workers: str) -> None:
    """Objects keep their types, and rules know exceptions, in a script, by `-m`, and with relative imports."""
    text = FLOW.replace("WORKERS", repr(workers))
    (tmp_path / "flow.py").write_text(text)
    done = python(tmp_path, "flow.py")
    assert (done.stdout, done.stderr) == ("[2, 3] True\nOdd: odd\n[2]\n", "")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "flow.py").write_text("from . import __name__ as package\n" + text)
    done = python(tmp_path, "-m", "package.flow")
    assert (done.stdout, done.stderr) == ("[2, 3] True\npackage.flow.Odd: odd\n[2]\n", "")


def test_the_command_line_knows_the_same(tmp_path: Path, workers: str) -> None:
    """`resile run flow.py` calls the functions of the file, from any folder."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "beside.py").write_text("NUMBER = 7\n")
    text = FLOW.replace("WORKERS", repr(workers)).replace("raise Odd", "import beside\n    raise Odd")
    (tmp_path / "inside" / "flow.py").write_text(text + "import beside\n")
    done = resile(tmp_path, "run", "inside/flow.py", "--json")
    assert done.returncode == 0
    assert '"message":"Odd: odd"' in done.stdout.replace('": "', '":"')


@pytest.mark.parametrize("how", ["stdin", "argument"])
def test_what_was_typed_in(tmp_path: Path, how: str) -> None:
    """Functions of no file run in threads; worker processes can't load them, which is said before anything runs."""
    for workers in ("threads", "processes"):
        text = FLOW.replace("WORKERS", repr(workers))
        done = python(tmp_path, "-", text=text) if how == "stdin" else python(tmp_path, "-c", text)
        if workers == "threads":
            assert (done.stdout, done.stderr) == ("[2, 3] True\nOdd: odd\n[2]\n", "")
        else:
            assert "the function `fail` is in no file, so no worker process can load it" in done.stderr
    assert [line.split()[0] for line in resile(tmp_path, "status").stdout.splitlines()] == ["RUN", "1"]


NOTEBOOK = """
import linecache, sys, types
user = sys.modules["__main__"] = types.ModuleType("__main__")
for number, cell in enumerate(CELLS):
    file = f"/tmp/ipykernel_12/{number}.py"
    linecache.cache[file] = (len(cell), None, cell.splitlines(True), file)
    exec(compile(cell, file, "exec"), user.__dict__)
"""


def test_a_notebook(tmp_path: Path) -> None:
    """Cells have the names of files that are not there: threads know their functions, and run them again."""
    functions, build = FLOW.split("with Workflow", 1)
    flow = "with Workflow" + build.replace("WORKERS", '"threads"')
    done = python(tmp_path, "-c", NOTEBOOK.replace("CELLS", repr([functions, flow, functions, flow])))
    assert (done.stdout, done.stderr) == ("[2, 3] True\nOdd: odd\n[2]\n" * 2, "")
    late = flow.partition("if __name__")[0], functions, "run(flow)"
    done = python(tmp_path, "-c", NOTEBOOK.replace("CELLS", repr([functions, *late])))
    assert "the name `fail` means another function by now" in done.stderr
    assert "build the workflow again" in done.stderr
    done = python(tmp_path, "-c", NOTEBOOK.replace("CELLS", repr([functions, flow.replace("threads", "processes")])))
    assert "the function `fail` is in no file, so no worker process can load it" in done.stderr


def test_a_decorator_of_another_file(tmp_path: Path, workers: str) -> None:
    """A function that a decorator of another module wraps is found in its own file."""
    (tmp_path / "wrapping.py").write_text(
        "import functools\ndef twice(function):\n    @functools.wraps(function)\n"
        "    def inner(x): return 2 * function(x)\n    return inner\n"
    )
    (tmp_path / "flow.py").write_text(
        "from resile import Workflow, run, step\nfrom wrapping import twice\n"
        "@step\n@twice\ndef double(x): return x\n"
        f"with Workflow('t', workers={workers!r}) as flow:\n    x = double(4)\n"
        "if __name__ == '__main__': print(run(flow).result(x))\n"
    )
    done = python(tmp_path, "flow.py")
    assert (done.stdout, done.stderr) == ("8\n", "")


def test_a_method_and_a_nested_name(tmp_path: Path, workers: str) -> None:
    """A function in a class is found by its full name."""
    (tmp_path / "flow.py").write_text(
        "from resile import Workflow, run, step\n"
        "class Group:\n"
        "    @staticmethod\n"
        "    @step\n"
        "    def double(x): return 2 * x\n"
        f"with Workflow('t', workers={workers!r}) as flow:\n    x = Group.double(4)\n"
        "if __name__ == '__main__': print(run(flow).result(x))\n"
    )
    done = python(tmp_path, "flow.py")
    assert (done.stdout, done.stderr) == ("8\n", "")
