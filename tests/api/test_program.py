"""What a program sees: pickles of another program's classes, errors with their places, and what it may be given."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from datetime import date
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
import pytest

import resile
from resile import ResileError, Workflow
from resile.commands.client import Client
from resile.commands.judge import Judgement
from tests.api import functions as f
from tests.api.conftest import Place
from tests.api.test_places import python
from tests.api.test_places import resile as command

FLOW = """
import os
from resile import Workflow, run, step

class Thing:
    number = 5

@step
def make():
    return Thing()

@step(park=True)
def use(thing, other):
    if not os.path.exists(os.environ["READY"]):
        raise RuntimeError("not yet")
    return thing.number + other.number

with Workflow("t", workers=WORKERS) as flow:
    use(make(), Thing())

if __name__ == "__main__":
    print(run(flow).status)
"""
KILLED = """
import os, time
from pathlib import Path
from resile import Workflow, run, step

@step(timeout="1s", grace="200ms", on_failure=True)
def stay():
    Path("pipe").write_text("begun")
    time.sleep(60)

with Workflow("t") as flow:
    stay()

if __name__ == "__main__":
    run(flow)
"""


@pytest.mark.parametrize("how", ["script", "module"])
def test_classes_of_the_program_are_found_by_any_other(
    tmp_path: Path, workers: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that a script or `python -m` began is gone on with by the command line, and asked by another program."""
    for folder in ("package", "elsewhere"):
        (tmp_path / folder).mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    monkeypatch.setenv("READY", str(tmp_path / "ready"))
    (tmp_path / "package" / "flow.py").write_text(FLOW.replace("WORKERS", repr(workers)))
    words = ["package/flow.py"] if how == "script" else ["-m", "package.flow"]
    assert python(tmp_path, *words).stdout == "parked\n"
    (tmp_path / "ready").touch()
    done = command(tmp_path / "elsewhere", "judge", "1", "use", "retry", "--resume", "--db", str(tmp_path / "r.db"))
    assert (done.returncode, done.stdout.splitlines()[1]) == (0, "2 steps: 2 completed")
    asking = "import resile; run = resile.resume(1); print(run.result('make').number, run.result('use'))"
    assert python(tmp_path, "-c", asking).stdout == "5 10\n"


def test_functions_of_a_module_take_objects_of_the_program(tmp_path: Path, workers: str) -> None:
    """A program may give its own objects to functions of another module."""
    (tmp_path / "helper.py").write_text(
        "from resile import step\n@step\ndef number(thing): return [thing.number, type(thing).__name__]\n"
    )
    (tmp_path / "flow.py").write_text(
        "from helper import number\nfrom resile import Workflow, run\n"
        "class Thing:\n    number = 6\n"
        f"with Workflow('t', workers={workers!r}) as flow: x = number(Thing())\n"
        "if __name__ == '__main__': print(run(flow).result(x))\n"
    )
    done = python(tmp_path, "flow.py")
    assert (done.stdout, done.stderr) == ("[6, 'Thing']\n", "")


def test_workers_are_where_the_run_was_started(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever goes on with a run, from wherever, its functions find their files as its commands do."""
    elsewhere = place.folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(place.folder)
    with Workflow("t") as flow:
        f.by_name.options(park=True)("beside")
    run = place.run(flow)
    assert run.status == "parked"
    (place.folder / "beside").write_text("here")
    monkeypatch.chdir(elsewhere)
    with Client.at(place.db) as client:
        client.judge(run.id, "by_name", Judgement(verdict="retry"))
    assert resile.resume(run.id, db=place.db).result("by_name") == "here"


def test_a_call_of_a_killed_engine_times_out(tmp_path: Path) -> None:
    """After kill -9 of the engine a call that takes too long has failed for that, once, and is not made again."""
    (tmp_path / "flow.py").write_text(KILLED)
    os.mkfifo(tmp_path / "pipe")
    env = {**os.environ, "RESILE_DB": str(tmp_path / "r.db")}
    engine = subprocess.Popen([sys.executable, "flow.py"], cwd=tmp_path, env=env)
    assert (tmp_path / "pipe").read_text() == "begun"
    engine.send_signal(signal.SIGKILL)
    engine.wait(60)
    done = command(tmp_path, "resume", "1", "--json")
    document = msgspec.json.decode(done.stdout)
    assert (document["status"], document["jobs"][0]["attempts"]) == ("completed", 1)
    failure = {"step": "stay", "attempt": 1, "kind": "timeout", "exit_code": 143, "message": "timed out after 1s"}
    assert document["first_failure"] == failure


def test_a_child_that_comes_back_is_not_its_parent(tmp_path: Path, workers: str) -> None:
    """Where a function forks, what the child returns or raises is nobody's result, and the next call is made once."""
    (tmp_path / "flow.py").write_text(
        "import os\nfrom resile import Workflow, run, step\n"
        "@step\ndef fork(fail):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        if fail: raise ValueError('child')\n"
        "        return 'child'\n"
        "    return ['parent', os.waitpid(child, 0)[1] >> 8]\n"
        "@step\ndef after(*_):\n    open('calls', 'a').write('called\\n')\n"
        f"with Workflow('t', workers={workers!r}, max_parallel=1) as flow:\n"
        "    x, y = fork(False), fork(True)\n    after(x, y)\n"
        "if __name__ == '__main__':\n    done = run(flow)\n    print(done.status, done.result(x), done.result(y))\n"
    )
    assert python(tmp_path, "flow.py").stdout == "completed ['parent', 0] ['parent', 1]\n"
    assert (tmp_path / "calls").read_text() == "called\n"


def test_a_child_does_not_keep_its_worker_alive(tmp_path: Path) -> None:
    """A process that a function forks and leaves behind holds nobody up when its worker ends."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "flow.py").write_text(
        "import os\nfrom resile import Workflow, run, step\n"
        "@step(on_failure=True)\ndef fork():\n"
        "    if not os.fork():\n        os.setsid()\n        open('pipe').read()\n        os._exit(0)\n"
        "    os._exit(3)\n"
        "with Workflow('t') as flow: fork()\n"
        "if __name__ == '__main__': print(run(flow).document['first_failure']['exit_code'])\n"
    )
    assert python(tmp_path, "flow.py").stdout == "3\n"
    os.close(os.open(tmp_path / "pipe", os.O_WRONLY))


def test_a_document_stands_alone_on_stdout(tmp_path: Path) -> None:
    """With --json what a file and its functions print, in threads and by other programs, goes to stderr."""
    (tmp_path / "flow.py").write_text(
        "import os\nfrom resile import Workflow, step\nprint('loaded')\n"
        "@step\ndef say():\n    print('printed')\n    os.write(1, b'written\\n')\n    os.system('echo echoed')\n"
        "with Workflow('t', workers='threads') as flow: say()\n"
    )
    done = command(tmp_path, "run", "flow.py", "--json")
    assert msgspec.json.decode(done.stdout)["status"] == "completed"
    assert sorted(done.stderr.splitlines()) == ["echoed", "loaded", "printed", "run 1", "written"]
    plain = command(tmp_path, "run", "flow.py")
    assert sorted(plain.stdout.splitlines()[:3]) == ["echoed", "printed", "written"]
    for words in (("check", "flow.py", "--json"), ("migrate", "flow.py")):
        done = command(tmp_path, *words)
        assert ("loaded" in done.stdout, "loaded" in done.stderr, done.returncode) == (False, True, 0)


def test_a_traceback_is_in_the_log(place: Place, workers: Any) -> None:
    """What a function raised is in the log of its attempt, in threads too, each in its own range."""
    with Workflow("t", workers=workers, max_parallel=1) as flow:
        f.fail_softly("first")
        f.fail_softly("second")
    place.run(flow)
    logs = [(place.folder / "output" / "job_stdio" / f"job_wf1_j{job}_r1_a1.e").read_text() for job in (1, 2)]
    assert [text.splitlines()[0] for text in logs] == ["Traceback (most recent call last):"] * 2
    assert [text.splitlines()[-1] for text in logs] == ["ValueError: first", "ValueError: second"]


def test_a_function_that_mends_can_ask_what_failed(place: Place, workers: Any) -> None:
    """`current().failed` says which step failed and how, in both kinds of workers; outside a repair there is none."""
    path = place.folder / "told"
    with Workflow("t", workers=workers) as flow:
        mended = f.mended.options(on_failure={"run": ["mender"], "retry": {"max": 1}})(str(path))
        f.mend(str(path))
    run = place.run(flow)
    missing = f"FileNotFoundError: [Errno 2] No such file or directory: {str(path)!r}"
    assert run.result(mended) == repr(("mended", 1, 1, "exit", 1, missing, "FileNotFoundError"))


def test_an_error_that_nobody_catches_shows_its_place_and_its_hint(tmp_path: Path) -> None:
    """As text an error is one line; its traceback has the place and the hint, or every finding."""
    with pytest.raises(ResileError) as caught:
        Workflow("t", inputs={"a": 1}).input("b")
    assert str(caught.value) == "t has no input 'b'"
    assert traceback.format_exception_only(caught.value)[1:] == ["  hint: its inputs: a\n"]
    bad = tmp_path / "bad.yaml"
    bad.write_text("resile: 1\nsteps: {a: {shel: x}, b: {shell: x, nees: [a]}}\n")
    with pytest.raises(ResileError, match=r"\(and \d more\)") as caught:
        resile.load(bad)
    shown = "".join(traceback.format_exception_only(caught.value))
    for finding in ("2:13: error: a step has no key `shel`", "2:37: error: a step has no key `nees`"):
        assert f"{bad}:{finding}" in shown
    assert "hint: did you mean `shell`?" in shown


def test_paths_may_be_paths_and_nonsense_is_refused(tmp_path: Path) -> None:
    """`run` and `load` take a Path; what is no workflow, and no number of steps, is refused before anything runs."""
    file = tmp_path / "flow.yaml"
    file.write_text("resile: 1\nname: y\nsteps: {say: {shell: echo hi}}\n")
    db = str(tmp_path / "r.db")
    assert resile.run(file, db=db, output=str(tmp_path)).result("say") == "hi"
    with pytest.raises(TypeError, match=r"run\(\) takes a Workflow, a loaded one or the path of a file, not int"):
        resile.run(3)  # type: ignore[arg-type]
    for number in (0, 10_001, True, "2"):
        refused = f"max_parallel is a whole number from 1 to 10000, not {number!r}"
        with pytest.raises(ResileError, match=refused):
            resile.run(file, db=db, max_parallel=number)  # type: ignore[arg-type]
        with pytest.raises(ResileError, match=refused):
            resile.resume(1, db=db, max_parallel=number)  # type: ignore[arg-type]


def test_a_judged_step_has_the_result_that_it_was_given(place: Place) -> None:
    """`judge skip --output` gives a value, which the program gets as what needs the step does."""
    with Workflow("t") as flow:
        x = f.parked()
        y = f.give(x)
    run = place.run(flow)
    with pytest.raises(ResileError, match=r"'parked' of run 1 is parked: .* \(RuntimeError: look at this\)"):
        run.result(x)
    with Client.at(place.db) as client:
        client.judge(run.id, "parked", Judgement(verdict="skip", output={"a": 1}))
    run = resile.resume(run.id, db=place.db)
    assert (run.result(x), run.result(y)) == ({"a": 1}, {"a": 1})


def test_bytes_that_are_no_text_reach_a_function(place: Place, workers: Any) -> None:
    """Names of files that are no UTF-8 are inputs, also inside lists, and arrive as they are."""
    name = os.fsdecode(b"caf\xe9")
    with Workflow("t", workers=workers, inputs={"name": "x", "names": []}) as flow:
        both = f.give([flow.input("name"), flow.input("names")])
    run = place.run(flow, inputs={"name": name, "names": [name, {name: 1}]})
    assert run.result(both) == [name, [name, {name: 1}]]
    with pytest.raises(ResileError, match="input 'names' is neither JSON nor can it be pickled"):
        place.run(flow, inputs={"names": Lock()})


def test_inputs_arrive_as_the_values_that_they_are(place: Place, workers: Any) -> None:
    """A number, a flag, a text that looks like a number, a date and a tuple reach a function as what they are."""
    with Workflow("t", workers=workers, inputs={"any": {"required": True}, "count": 1, "quick": False}) as flow:
        every = f.give([flow.input("any"), flow.input("count"), flow.input("quick")])
    for value in (5, 2.5, True, None, "5", [1, {"a": None}], (1, 2), date(2026, 2, 28)):
        run = place.run(flow, inputs={"any": value, "count": 7, "quick": True})
        found = run.result(every)
        assert (found, type(found[0])) == ([value, 7, True], type(value))
    for name, wrong in (("count", "3"), ("count", True), ("quick", 1)):
        with pytest.raises(ResileError, match=rf"input '{name}': {wrong!r} is not a "):
            place.run(flow, inputs={"any": 1, name: wrong})
    with pytest.raises(ResileError, match="t has no input 'more'"):
        place.run(flow, inputs={"any": 1, "more": 2})


def test_a_file_takes_values_that_json_holds(place: Place) -> None:
    """Inputs of a native file are values too, and one that only Python could read is refused."""
    file = place.folder / "flow.yaml"
    file.write_text("resile: 1\ninputs: {x: {required: true}}\nsteps: {a: {shell: 'echo ${inputs.x}'}}\n")
    run = resile.run(str(file), db=place.db, output=str(place.folder / "output"), inputs={"x": 5})
    assert (run.status, run.result("a")) == ("completed", "5")
    with pytest.raises(ResileError, match="input 'x' is nothing that JSON holds: <object"):
        resile.run(str(file), db=place.db, inputs={"x": object()})
