"""Evaluations that take long, because their process gets no time to run: the rest of the run goes on meanwhile.

A test stops the process that evaluates. It looks like one on a busy machine, and answers when a step lets it go on.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import resile
from resile.api.workflow import Workflow
from resile.languages.javascript import evaluate, helper
from resile.languages.javascript.evaluate import Sandbox
from resile.languages.javascript.helpers import Helpers

LOOKS_NEVER_SECONDS = 3600.0
OTHERS = [f"s{number}" for number in range(20)]


class Slow:
    """A run whose first evaluation takes until a step has sent SIGCONT to `worker`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.folder = folder
        self.db = str(folder / "r.db")
        self.helpers = Helpers()
        assert Sandbox(self.helpers).evaluate("1", {}, now=0.0, seed="", form="expression").value == 1
        keeper = self.helpers.idle[0].pid
        self.worker = int(Path(f"/proc/{keeper}/task/{keeper}/children").read_text())
        self.events: list[dict[str, Any]] = []

    def load(self, text: str) -> Workflow:
        """The workflow of a text, in which WAKE stands for the command that lets the evaluation go on."""
        Path("flow.yaml").write_text(text.replace("WAKE", f"kill -CONT {self.worker}"))
        return resile.load("flow.yaml")

    def run(self, text: str) -> resile.Run:
        """Run a workflow; keep its events."""
        flow = self.load(text)
        os.kill(self.worker, signal.SIGSTOP)
        self._monkeypatch.setattr(helper, "SILENCE_SECONDS", LOOKS_NEVER_SECONDS)
        self._monkeypatch.setattr(evaluate, "Helpers", lambda: self.helpers)
        return resile.run(flow, db=self.db, max_parallel=4, on_event=self.events.append)

    def order(self, *types: str) -> list[tuple[str, str]]:
        """The events of these types, in order, with the names of their steps; without those of `end`."""
        found = [(event["type"], event["step"]) for event in self.events if event["type"] in types]
        return [one for one in found if one[1] != "end"]


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    """A stopped evaluator, which is killed in the end."""
    monkeypatch.chdir(tmp_path)
    made = Slow(tmp_path, monkeypatch)
    yield made
    made.helpers.close()


def test_twenty_steps_run_and_a_timer_fires_while_a_condition_is_evaluated(slow: Slow) -> None:
    """The conditions of the others are answered by other processes; the slow one then gets its own answer."""
    others = "".join(f'  {name}: {{shell: "true", when: "2 > 1"}}\n' for name in OTHERS)
    done = slow.run(
        "resile: 1\nsteps:\n"
        '  slow: {shell: echo slow, when: "1 + 1 === 2"}\n'
        "  flaky: {shell: mkdir there && exit 3; true, retry: {max: 1, backoff: 10ms}}\n"
        f"{others}"
        f"  wake: {{shell: WAKE, needs: [flaky, {', '.join(OTHERS)}]}}\n"
    )
    assert done.status == "completed"
    order = slow.order("step_completed", "attempt_started")
    assert {step for kind, step in order[: order.index(("attempt_started", "wake"))] if kind == "step_completed"} == {
        "flaky",
        *OTHERS,
    }
    assert order.index(("attempt_started", "slow")) > order.index(("attempt_started", "wake"))
    assert order.count(("attempt_started", "flaky")) == 2
    assert order.count(("attempt_started", "slow")) == 1


def test_a_run_is_canceled_while_a_condition_is_evaluated(slow: Slow) -> None:
    """The step never starts, and nothing waits for its condition."""
    cancel = f"{sys.executable} -m resile.cli.main cancel 1 --db {slow.db}"
    done = slow.run(
        f'resile: 1\nsteps:\n  slow: {{shell: echo slow, when: "1 < 2"}}\n  stop: {{shell: {cancel}; sleep 60}}\n'
    )
    assert done.status == "canceled"
    assert slow.order("attempt_started") == [("attempt_started", "stop")]


VISOR = """
version: "1.0"
steps:
  slow: {SLOW}
  other: {type: command, exec: "echo '{{ env.HOME | upcase | size }}'"}
  wake: {type: command, depends_on: [other], exec: "WAKE"}
"""


@pytest.mark.parametrize(
    "keys",
    [
        # The command of `slow` runs at once, and its value is computed later.
        'type: command, exec: "echo 1", transform_js: "return output + 1"',
        # A step that is code only starts and ends with it.
        'type: script, content: "return 2"',
    ],
    ids=["transform", "script"],
)
def test_a_value_is_computed_while_other_steps_run(slow: Slow, keys: str) -> None:
    """A step with slow code ends when its code has ended; a step beside it starts and ends before."""
    done = slow.run(VISOR.replace("SLOW", keys))
    assert done.status == "completed"
    ended = [step for _, step in slow.order("step_completed")]
    # `wake` and `slow` end at the same moment.
    assert (ended[0], sorted(ended[1:])) == ("other", ["slow", "wake"])
    assert done.result("slow") == 2


def test_two_scripts_never_overwrite_what_the_other_remembers(slow: Slow) -> None:
    """The second begins when the first, slow one has written the memory."""
    count = "memory.set('n', (memory.get('n') || 0) + 1); return memory.get('n')"
    done = slow.run(
        f"""
version: "1.0"
steps:
  first: {{type: script, content: "{count}"}}
  second: {{type: script, content: "{count}"}}
  wake: {{type: command, exec: "WAKE"}}
"""
    )
    assert done.status == "completed"
    assert (done.result("first"), done.result("second")) == (1, 2)


def test_a_script_that_is_evaluated_is_canceled_with_its_run(slow: Slow) -> None:
    """Its attempt is withdrawn, and what it would have remembered is not."""
    cancel = f"{sys.executable} -m resile.cli.main cancel 1 --db {slow.db}"
    done = slow.run(
        f"""
version: "1.0"
steps:
  slow: {{type: script, content: "memory.set('n', 1); return 1"}}
  stop: {{type: command, exec: "{cancel}; sleep 60"}}
"""
    )
    assert done.status == "canceled"
    assert [event["type"] for event in slow.events if event["step"] == "slow"] == ["step_canceled"]


GIT = """#!/bin/sh
if CONDITION; then until test -e .git/woken; do sleep 0.01; done; fi
exec REAL "$@"
"""


@pytest.mark.parametrize("condition", ["true", "test -e made"], ids=["start", "end"])
def test_other_steps_run_while_git_gives_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    """`commit_required` asks git before and after its step; only that step waits for a call that is stuck."""
    real = shutil.which("git")
    assert real is not None
    monkeypatch.chdir(tmp_path)
    subprocess.run([real, "init", "-q"], check=True)
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(GIT.replace("CONDITION", condition).replace("REAL", real))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    commit = f"{real} -c user.name=x -c user.email=x@y commit -q --allow-empty -m x; touch made"
    Path("flow.yaml").write_text(
        "resile: 1\nsteps:\n"
        f"  slow: {{shell: '{commit}', commit_required: true}}\n"
        '  other: {shell: "until CONDITION; do sleep 0.01; done"}\n'
        "  wake: {shell: touch .git/woken, needs: [other]}\n".replace("CONDITION", condition)
    )
    events: list[dict[str, Any]] = []
    done = resile.run(resile.load("flow.yaml"), db=str(tmp_path / "r.db"), max_parallel=4, on_event=events.append)
    assert done.status == "completed"
    ended = [event["step"] for event in events if event["type"] == "step_completed"]
    assert ended.index("other") < ended.index("slow")


ENGINE = """
import os, signal, sys
from pathlib import Path
import pytest
from tests.engine.test_slow_evaluations import Slow
slow = Slow(Path.cwd(), pytest.MonkeyPatch())
Path("worker").write_text(str(slow.worker))
slow.run(Path("text").read_text().replace("DIE", f"kill -9 {os.getpid()}"))
"""


@pytest.mark.parametrize(
    ("text", "effects"),
    [
        (
            'resile: 1\nsteps:\n  slow: {shell: echo slow >> effects, when: "1 < 2"}\n  die: {shell: DIE; true}\n',
            "slow\n",
        ),
        (
            'version: "1.0"\nsteps:\n'
            '  slow: {type: command, exec: "echo slow >> effects; echo 1", transform_js: "return output + 1"}\n'
            '  other: {type: command, exec: "until test -s effects; do sleep 0.01; done; echo other >> effects"}\n'
            '  die: {type: command, depends_on: [other], exec: "DIE; true"}\n',
            "slow\nother\n",
        ),
    ],
    ids=["condition", "end"],
)
def test_after_a_kill_the_next_engine_evaluates_again(tmp_path: Path, text: str, effects: str) -> None:
    """A question without an answer is asked again; an end that was not recorded is reported again, and nothing is
    run twice.
    """
    (tmp_path / "text").write_text(text)
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}
    killed = subprocess.run([sys.executable, "-c", ENGINE], cwd=tmp_path, env=env, check=False)
    assert killed.returncode == -signal.SIGKILL
    # It is still stopped, so that it can't see that its engine is gone.
    os.kill(int((tmp_path / "worker").read_text()), signal.SIGKILL)
    db = str(tmp_path / "r.db")
    done = resile.resume(1, db=db)
    assert done.status == "completed"
    assert (tmp_path / "effects").read_text() == effects
    jobs = {job["step"]: (job["status"], job["attempts"]) for job in done.document["jobs"]}
    assert jobs["slow"] == ("completed", 1)


def test_two_runs_in_one_process_share_helpers() -> None:
    """Closing the sandbox of one run leaves the helpers to the other."""
    shared = Helpers()
    first, second = Sandbox(shared), Sandbox(shared)
    assert first.evaluate("1", {}, now=0.0, seed="", form="expression").value == 1
    before = shared.idle[0].pid
    first.close()
    assert second.evaluate("2", {}, now=0.0, seed="", form="expression").value == 2
    assert [one.pid for one in shared.idle] == [before]
    shared.close()
