"""`rerun --failed-only` of failed maps and child workflows: it runs what did not succeed, and keeps everything else."""

from __future__ import annotations

import os
import subprocess
from collections import Counter

import pytest

from tests.runs.fanout.runs import counts, letters
from tests.runs.ladder.flows import Flows, Ran

MAP = """\
name: again
steps:
- id: process
  map:
    input: [a, b, c, d]
    error_policy: POLICY
    steps:
    - {id: one, shell: 'echo one-${item} >> effects; echo ${item}1', capture: first}
    - {id: two, shell: 'echo two-${item} >> effects; test ${item} != b || test -e fixed'}
    - {id: three, shell: 'echo ${first} of ${item}'}
- {id: reduce, shell: 'echo ${steps.process.results} ${steps.process.successful} >> effects'}
"""
NESTED = """\
name: again
steps:
- id: outer
  map:
    input: [x, y]
    steps:
    - {id: before, shell: 'echo before-${item} >> effects; echo ${item}${item}', capture: twice}
    - id: inner
      map:
        input: [1, 2, 3]
        steps:
        - id: leaf
          shell: 'echo leaf-${twice}-${item} >> effects; echo ${item}; test ${twice}${item} != yy2 || test -e fixed'
    - {id: tail, shell: 'echo tail-${twice} ${steps.inner.results} >> effects'}
- {id: reduce, shell: 'echo reduce >> effects'}
"""
TAILS = ('tail-xx ["1","2","3"]', 'tail-yy ["1","2","3"]')
CHILD = """\
resile: 1
name: child
inputs: {who: {required: true}}
steps:
- {id: first, shell: 'echo first-${inputs.who} >> effects; echo 1', capture: number}
- {id: second, shell: 'echo second-${inputs.who} >> effects; test ${inputs.who} != y || test -e fixed'}
- {id: third, shell: 'echo third-${inputs.who} ${number} >> effects; echo done-${inputs.who}', capture: word}
- {id: end, shell: "echo end-${inputs.who} >> effects"}
"""
IN_ROOT = """\
name: again
steps:
- {id: sub, workflow: child.yaml, inputs: {who: y}}
- {id: after, shell: 'echo after ${steps.sub.outputs.word} >> effects'}
"""
IN_ITEMS = """\
name: again
steps:
- id: outer
  map: {input: [x, y, z], steps: [{id: sub, workflow: child.yaml, inputs: {who: '${item}'}}]}
- {id: after, shell: 'echo after >> effects'}
"""


def effects(flows: Flows) -> Counter[str]:
    """How often each line was written."""
    return Counter((flows.folder / "effects").read_text().splitlines())


def again(flows: Flows, code: int = 0) -> Ran:
    """Run again what failed, after the cause is mended."""
    (flows.folder / "fixed").touch()
    return flows.drive("rerun", "1", "--failed-only", code=code)


@pytest.mark.parametrize(
    "policy", ["{}", "{on_item_failure: stop}", "{max_failures: 1}", "{on_item_failure: skip, failure_threshold: 0.1}"]
)
def test_only_the_items_that_did_not_succeed_run_again(flows: Flows, policy: str) -> None:
    """Whatever stopped the map: the others keep their results, letters are answered, and `reduce` goes on."""
    flows.run(MAP.replace("POLICY", policy), 1)
    ran = again(flows)
    seen = effects(flows)
    assert [seen[f"one-{item}"] for item in "acd"] == [1, 1, 1]
    assert [seen[f"two-{item}"] for item in "abcd"] == [1, 2, 1, 1]
    assert seen['["a1 of a","b1 of b","c1 of c","d1 of d"] 4'] == 1
    assert counts(ran) == (4, 4, 0, 0, 0)
    assert letters(flows) == []


def test_what_an_item_completed_before_its_failure_is_kept(flows: Flows) -> None:
    """The item goes on at the step that failed, with the values that it had."""
    flows.run(MAP.replace("POLICY", "{}"), 1)
    again(flows)
    assert effects(flows)["one-b"] == 1


def test_an_item_that_fails_again_keeps_one_letter_with_both_failures(flows: Flows) -> None:
    """And one more rerun goes on from there."""
    flows.run(MAP.replace("POLICY", "{}"), 1)
    ran = flows.drive("rerun", "1", "--failed-only", code=1)
    assert counts(ran) == (4, 3, 1, 0, 0)
    assert letters(flows) == [("process[1]", "failed", 2)]
    status = flows.program.call("status", "1", code=0).stdout
    assert "process: 3 of 4 items succeeded, 1 failed" in status
    assert "process[1]/two" in status
    assert counts(again(flows)) == (4, 4, 0, 0, 0)
    seen = effects(flows)
    assert (seen["one-b"], seen["two-a"], seen["two-b"]) == (1, 1, 3)


def test_letters_that_were_purged_are_still_failed_items(flows: Flows) -> None:
    """A purge answers nothing: what failed runs again, and what succeeded does not."""
    flows.run(MAP.replace("POLICY", "{}"), 1)
    flows.program.call("dlq", "purge", "1", "--yes", code=0)
    assert counts(again(flows)) == (4, 4, 0, 0, 0)
    seen = effects(flows)
    assert (seen["one-a"], seen["two-a"], seen["two-b"]) == (1, 1, 2)


def test_a_retry_of_the_letters_and_a_rerun_meet(flows: Flows) -> None:
    """What a redrive answered is not run again, and what it left is."""
    text = MAP.replace("POLICY", "{}").replace("!= b", "!= b && test ${item} != d")
    flows.run(text, 1)
    (flows.folder / "fixed").touch()
    flows.program.call("dlq", "retry", "1", "--filter", "item === 'd'", code=0)
    assert counts(again(flows)) == (4, 4, 0, 0, 0)
    seen = effects(flows)
    assert [seen[f"two-{item}"] for item in "abcd"] == [1, 2, 1, 2]
    assert seen['["a1 of a","b1 of b","c1 of c","d1 of d"] 4'] == 1


def test_a_full_rerun_runs_everything(flows: Flows) -> None:
    """Without `--failed-only` nothing is kept."""
    flows.run(MAP.replace("POLICY", "{}"), 1)
    (flows.folder / "fixed").touch()
    flows.drive("rerun", "1")
    seen = effects(flows)
    assert [seen[f"one-{item}"] for item in "abcd"] == [2, 2, 2, 2]


def test_a_map_inside_a_map_keeps_its_items_too(flows: Flows) -> None:
    """Only the inner item that failed runs; the outer item goes on with its own results."""
    flows.run(NESTED, 1)
    ran = again(flows)
    assert effects(flows) == Counter(
        [f"before-{item}" for item in "xy"]
        + [f"leaf-{item}{item}-{number}" for item in "xy" for number in (1, 2, 3)]
        + ["leaf-yy-2"]
        + [*TAILS, "reduce"]
    )
    assert counts(ran, "outer") == (2, 2, 0, 0, 0)
    assert counts(ran, "outer/inner") == (6, 6, 0, 0, 0)
    assert letters(flows) == []


def test_a_redrive_of_an_inner_map_completes_it(flows: Flows) -> None:
    """When no inner letter is left, the outer item goes on after its map."""
    flows.run(NESTED, 1)
    (flows.folder / "fixed").touch()
    flows.program.call("dlq", "retry", "1", "--step", "outer/inner", code=0)
    again(flows)
    seen = effects(flows)
    assert (seen["leaf-yy-2"], seen["before-y"], seen[TAILS[1]], seen["reduce"]) == (2, 1, 1, 1)


def test_a_child_goes_on_where_it_failed(flows: Flows) -> None:
    """Steps that completed in the child keep their values; its `end` runs once more."""
    (flows.folder / "child.yaml").write_text(CHILD)
    flows.run(IN_ROOT, 1)
    again(flows)
    assert effects(flows) == Counter(["first-y", *["second-y"] * 2, "third-y 1", *["end-y"] * 2, "after done-y"])


def test_children_inside_items_go_on_where_they_failed(flows: Flows) -> None:
    """Only the child of the failed item runs, and of it only what did not complete."""
    (flows.folder / "child.yaml").write_text(CHILD)
    flows.run(IN_ITEMS, 1)
    again(flows)
    seen = effects(flows)
    assert [seen[f"first-{item}"] for item in "xyz"] == [1, 1, 1]
    assert [seen[f"second-{item}"] for item in "xyz"] == [1, 2, 1]
    assert (seen["third-y 1"], seen["after"]) == (1, 1)


def test_a_map_inside_a_child_keeps_its_items(flows: Flows) -> None:
    """A failed child with a failed map: the map runs its failed items, then the child goes on."""
    (flows.folder / "child.yaml").write_text(NESTED.replace("name: again", "resile: 1\nname: child"))
    flows.run("name: again\nsteps:\n- {id: sub, workflow: child.yaml}\n", 1)
    ran = again(flows)
    seen = effects(flows)
    assert (seen["before-x"], seen["before-y"], seen["leaf-yy-1"], seen["leaf-yy-2"]) == (1, 1, 1, 2)
    assert (seen[TAILS[1]], seen["reduce"]) == (1, 1)
    assert counts(ran, "sub/outer/inner") == (6, 6, 0, 0, 0)


def test_a_map_that_could_not_list_its_items_lists_them_now(flows: Flows) -> None:
    """Nothing was begun, so there is nothing to keep."""
    source = "{command: cat items.json}"
    flows.run(f"name: again\nsteps:\n- id: process\n  map: {{input: {source}, steps: [{{shell: 'true'}}]}}\n", 1)
    (flows.folder / "items.json").write_text("[1, 2]")
    assert counts(again(flows)) == (2, 2, 0, 0, 0)


def test_a_canceled_map_goes_on_with_the_items_that_did_not_run(flows: Flows) -> None:
    """Canceled and unstarted items run, those that had succeeded do not."""
    cancel = f"{' '.join(flows.program.argv)} cancel 1"
    hangs = f"test ${{item}} != b || test -e fixed || {{ {cancel}; exec sleep 60; }}"
    flows.run(MAP.replace("POLICY", "{}").replace("test ${item} != b || test -e fixed", hangs), 3)
    assert counts(again(flows)) == (4, 4, 0, 0, 0)
    seen = effects(flows)
    assert [seen[f"one-{item}"] for item in "abcd"] == [1, 1, 1, 1]
    assert (seen["two-a"], seen["two-b"], seen["two-c"]) == (1, 2, 1)


def test_resume_goes_on_after_a_redrive_that_left_no_letter(flows: Flows) -> None:
    """The map is completed; what was canceled because of it runs, and the run is completed."""
    flows.run(MAP.replace("POLICY", "{on_item_failure: stop}"), 1)
    assert flows.drive("resume", "1", code=1).document["epoch"] == 1
    (flows.folder / "fixed").touch()
    flows.program.call("dlq", "retry", "1", code=0)
    ran = flows.drive("resume", "1")
    assert (ran.document["epoch"], ran.status["reduce"]) == (2, "completed")
    assert effects(flows)['["a1 of a","b1 of b","c1 of c","d1 of d"] 4'] == 1
    assert flows.drive("resume", "1").document["epoch"] == 2


@pytest.mark.parametrize(
    "policy",
    [
        "{on_item_failure: stop}",
        "{max_failures: 1}",
        "{failure_threshold: 0}",
        "{continue_on_failure: false}",
        "{circuit_breaker: {failure_threshold: 1, timeout: 1ms}}",
    ],
)
def test_a_redrive_tries_every_selected_letter(flows: Flows, policy: str) -> None:
    """Whatever would have stopped the map: all of them still fail, and each has run once more."""
    shell = "echo ${item} >> tried; exit 1"
    keys = f"input: [a, b, c], error_policy: {policy}, steps: [{{shell: '{shell}'}}]"
    flows.run(f"name: m\nsteps:\n- id: m\n  map: {{{keys}}}\n", 1)
    kept = len(letters(flows))
    (flows.folder / "tried").unlink()
    flows.program.call("dlq", "retry", "1", "--max-parallel", "1", code=1)
    assert sorted((flows.folder / "tried").read_text().split()) == ["a", "b", "c"][-kept:] == ["a", "b", "c"]
    assert len(letters(flows)) == 3


def test_an_item_in_a_worktree_of_its_own_starts_over(flows: Flows) -> None:
    """Its worktree is made anew, so what it did in the one before is done again; the others are kept."""
    git = ["git", "-c", "user.email=a@example.org", "-c", "user.name=a"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run([*git, *words], cwd=flows.folder, check=True, env=os.environ, capture_output=True)
    here = flows.folder
    text = MAP.replace("POLICY", "{}").replace("    steps:", "    isolation: worktree\n    steps:", 1)
    flows.run(text.replace("effects", f"{here}/effects").replace("-e fixed", f"-e {here}/fixed"), 1)
    assert counts(again(flows)) == (4, 4, 0, 0, 0)
    seen = effects(flows)
    assert [seen[f"one-{item}"] for item in "abcd"] == [1, 2, 1, 1]


def test_parked_items_run_again_with_their_map(flows: Flows) -> None:
    """A run that waits for a judgement has not finished its map: a rerun of what failed lists the items anew."""
    step = "{id: w, shell: 'echo ${item} >> effects; test ${item} != b || test -e fixed', park: true}"
    flows.run(f"name: m\nsteps:\n- id: m\n  map: {{input: [a, b], steps: [{step}]}}\n", 4)
    assert counts(again(flows), "m") == (2, 2, 0, 0, 0)
