"""Prodigy files, run for real: which commands ran, in which order, and what came of the steps."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.dialects.prodigy.folder import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty folder."""
    return Folder(tmp_path)


def test_a_list_runs_in_order_and_stops_at_a_failure(folder: Folder) -> None:
    """The first failure that nothing answers is the end of it."""
    assert folder.run("- shell: ./step a\n- shell: ./step b 9\n- shell: ./step c\n", code=1) == ["a", "b"]
    assert folder.status == {"step-1": "completed", "step-2": "failed", "step-3": "canceled"}


def test_max_attempts_counts_executions(folder: Folder) -> None:
    """The handler runs before each further execution; the last thing that runs is the step."""
    text = "- shell: ./step a 9\n  on_failure: {claude: '/fix ${shell.output}', max_attempts: 3, fail_workflow: true}\n"
    assert folder.run(text, code=1) == ["a", "agent: /fix a is broken", "a", "agent: /fix a is broken", "a"]
    assert folder.status == {"step-1": "failed"}


def test_a_handler_lets_the_workflow_go_on(folder: Folder) -> None:
    """Recovered when it passes, tolerated when it does not; a string, a list, and both kinds in one."""
    text = """
- {shell: ./step a 9, on_failure: ./step h}
- {shell: ./step b 9, on_failure: [./step i, ./step j 9, ./step k]}
- {shell: ./step c 9, on_failure: {shell: ./step l, claude: /look}}
- {shell: ./step d 9, on_failure: true}
- {shell: ./step e 9, allow_failure: true}
- {shell: ./step f}
"""
    assert folder.run(text) == ["a", "h", "b", "i", "j", "c", "l", "agent: /look", "d", "e", "f"]
    words = ["recovered", "tolerated", "recovered", "tolerated", "tolerated", "completed"]
    assert list(folder.status.values()) == words


def test_what_follows_a_success(folder: Folder) -> None:
    """`on_success` in chains, and `on_exit_code` for success and failure alike."""
    text = """
- shell: ./step a
  on_success:
    shell: ./step b
    on_success: {shell: ./step c 9, on_failure: {claude: "/debug ${error.exit_code}"}}
- shell: ./step d 9 7
  on_exit_code: {0: {shell: ./step never}, 7: {shell: ./step seven}}
- shell: ./step e
  on_exit_code: {0: {shell: ./step zero}}
- shell: ./step f 9 3
  on_exit_code: {7: {shell: ./step never}}
"""
    assert folder.run(text, code=1) == ["a", "b", "c", "agent: /debug 1", "d", "seven", "e", "zero", "f"]
    assert list(folder.status.values()) == ["completed", "recovered", "completed", "failed"]


def test_values_reach_where_they_are_named(folder: Folder) -> None:
    """Captured values, arguments and defaults, quoted for their place; awk and the shell keep theirs."""
    text = """
- shell: printf 'one two' | awk '{print $2}'
  capture: word
- shell: 'echo "{\\"n\\": {\\"k\\": [1, \\"a b\\"]}}"'
  capture: data
  capture_format: json
- shell: echo loud >&2; exit 4
  capture: failing
  on_failure: true
- shell: |
    for word_ in $word; do echo "$word_ ${data.n.k[1]} '${ARG}' ${UNSET:-80} ${ARG_1:-none}" >> trace; done
    echo ${failing.exit_code} ${failing.stderr} "$(echo ${word:-x})" >> trace
- claude: "/say $word ${data.n.k} $ARG $5 ${UNSET:-80} ${UNSET}"
  when: "${word} == 'two' && ${failing.exit_code} > 3 && !${missing}"
- shell: ./step never
  when: "${data.n.k[0]} > 1"
"""
    assert folder.run(text, "--input", "ARG=it's; $(id)") == [
        "two a b 'it's; $(id)' 80 none",
        "4 loud two",
        'agent: /say two [1,"a b"] it\'s; $(id) $5 80 ${UNSET}',
    ]
    assert folder.status["step-6"] == "skipped"


def test_an_argument_must_be_given(folder: Folder) -> None:
    """A file that says `$ARG` does not run without it."""
    assert folder.run("- shell: ./step $ARG\n", code=2) == []
    assert folder.document["error"]["hint"] == "give it with --input ARG=…"


def test_a_validation_is_repeated_until_it_is_complete(folder: Folder) -> None:
    """Check, mend, check again; the gaps reach the prompt as they are."""
    text = """
- shell: ./step make
  validate:
    commands: [{claude: /reach 40}, {shell: ./step checked}]
    result_file: result.json
    threshold: 60
    on_incomplete:
      claude: "/mend ${validation.gaps} ${validation.completion} ${validation.attempt_number}"
      max_attempts: 2
- shell: ./step after
"""
    mend = 'agent: /mend {"g1":"it\'s $HOME"} 40'
    once = ["agent: /reach 40", "checked"]
    assert folder.run(text, code=1) == ["make", *once, f"{mend} 1", *once, f"{mend} 2", *once]
    assert folder.status == {"step-1": "failed", "step-2": "canceled"}
    accepted = text.replace("max_attempts: 2", "max_attempts: 1\n      fail_workflow: false")
    assert folder.run(accepted) == ["make", *once, f"{mend} 1", *once, "after"]
    assert folder.run(text.replace("40}", "60}")) == ["make", "agent: /reach 60", "checked", "after"]


def test_a_failed_validation_is_a_failure_of_the_step(folder: Folder) -> None:
    """A check without a file goes by its exit code, and the step's handler answers it: the step runs again."""
    text = "- shell: ./step a\n  validate: ./step check 1\n  on_failure: {shell: ./step fix, max_attempts: 2}\n"
    assert folder.run(text) == ["a", "check", "fix", "a", "check"]
    beside = "- {shell: ./step a, validate: ./step check 1, on_failure: ./step fix, max_attempts: 2}\n"
    assert folder.run(beside) == ["a", "check", "fix", "a", "check"]
    never = text.replace("check 1", "check 9").replace("2}", "3, fail_workflow: true}")
    assert folder.run(never, code=1) == ["a", "check", "fix", "a", "check", "fix", "a", "check"]
    assert folder.status == {"step-1": "failed"}
    assert folder.run("- shell: ./step a\n  validate: ./step check 9\n", code=1) == ["a", "check"]
    assert folder.run("- shell: ./step a\n  validate: ./step check 9\n  on_failure: true\n") == ["a", "check"]


def test_what_stays_incomplete_is_for_the_handler_of_the_step(folder: Folder) -> None:
    """After `on_incomplete` is spent; where that accepts what there is, nobody is asked."""
    text = """
- shell: ./step a
  capture: made
  validate: {shell: ./step check %s, on_incomplete: {shell: ./step mend, max_attempts: 1%s}}
  on_failure: {shell: "./step 'fix ${error.kind}'", max_attempts: 2}
- shell: ./step after
"""
    assert folder.run(text % (2, "")) == ["a", "check", "mend", "check", "fix check", "a", "check", "after"]
    assert folder.run(text % (1, "")) == ["a", "check", "mend", "check", "after"]
    assert folder.run(text % (9, ", fail_workflow: false")) == ["a", "check", "mend", "check", "after"]
    spent = ["a", "check", "mend", "check", "fix check", "a", "check", "mend", "check", "after"]
    assert folder.run(text % (9, "")) == spent


def test_a_goal_is_sought(folder: Folder) -> None:
    """The command runs until the score is reached, or its tries are spent."""
    seek = "shell: ./step try, validate: 'echo \"score: $(grep -c try trace)0\"', threshold: 30"
    assert folder.run(f"- goal_seek: {{{seek}, max_attempts: 5}}\n") == ["try"] * 3
    assert folder.run(f"- goal_seek: {{{seek}, max_attempts: 2}}\n", code=1) == ["try"] * 2
    soft = f"- goal_seek: {{{seek}, max_attempts: 2, fail_on_incomplete: false}}\n- shell: ./step after\n"
    assert folder.run(soft) == ["try", "try", "after"]


def test_files_are_written(folder: Folder) -> None:
    """Text as it is, JSON laid out and checked, output into a file."""
    text = """
- shell: echo '[1, {"a":2}]'
  capture: data
  capture_format: json
  output_file: out/raw.txt
- write_file: {path: out/a.json, content: "${data}", format: json, mode: "0600"}
- write_file: {path: out/b.txt, content: "data ${data}\\n"}
- write_file: {path: out/c.json, content: "not json", format: json}
"""
    folder.run(text, code=1)
    out = folder.path / "out"
    assert (out / "raw.txt").read_text() == '[1, {"a":2}]\n'
    assert (out / "a.json").read_text() == '[\n  1,\n  {\n    "a": 2\n  }\n]\n'
    assert (out / "a.json").stat().st_mode & 0o777 == 0o600
    assert (out / "b.txt").read_text() == 'data [1,{"a":2}]\n'
    assert sorted(file.name for file in out.iterdir()) == ["a.json", "b.txt", "raw.txt"]


def test_the_environment_of_a_file(folder: Folder) -> None:
    """Files, fixed and computed values, profiles, secrets: each where it belongs."""
    (folder.path / ".env").write_text("# settings\nA=from file\nexport B='quoted # kept'\nC=3 # said\n")
    text = """
env_files: [.env]
env:
  A: fixed
  D: {command: echo computed}
  E: {condition: "${A} == 'dev'", when_true: yes, when_false: no}
secrets: {TOKEN: "${env:SECRET_TOKEN}"}
profiles: {dev: {A: dev}}
commands:
  - shell: echo "$A|$B|$C|$D|$E|$F|$TOKEN" >> trace
    env: {F: "own $D"}
  - claude: /tell $A $D $E
"""
    folder.program.env["SECRET_TOKEN"] = "hunter22"
    own = "fixed|quoted # kept|3|computed|no|own computed|hunter22"
    assert folder.run(text) == [own, "agent: /tell fixed computed no"]
    trace = folder.run(text, "--profile", "dev")
    assert trace == [own.replace("fixed", "dev").replace("|no|", "|yes|"), "agent: /tell dev computed yes"]
    (folder.path / ".env").unlink()
    assert folder.run(text, code=2) == []
    assert folder.document["error"]["message"] == "env file '.env': No such file or directory"


def test_a_commit_must_be_made(folder: Folder) -> None:
    """By the step, and by a handler that says so; files that a step promises are found."""
    folder.repository()
    text = """
- {claude: /commit, commit_required: true}
- shell: ./step a 1
  on_failure: {claude: /commit, commit_required: true, max_attempts: 2}
- claude: /plan
  id: plan
  outputs: {spec: {file_pattern: "*-spec.md"}}
- claude: /build ${plan.spec}
"""
    (folder.path / "a-spec.md").write_text("x")
    commit = "agent: /commit"
    assert folder.run(text) == [commit, "a", commit, "a", "agent: /plan", "agent: /build a-spec.md"]
    (folder.path / "a-spec.md").unlink()
    assert folder.run("- {claude: /look, commit_required: true}\n", code=1) == ["agent: /look"]


def test_items_of_a_foreach(folder: Folder) -> None:
    """One after the other; the first failure ends it, unless the file says to go on."""
    text = "- foreach: {foreach: [a, b c, d], do: [{shell: './step \"${item} ${index}/${total}\" %s'}]%s}\n"
    assert folder.run(text % ("", "")) == ["a 0/3", "b c 1/3", "d 2/3"]
    broken = "$(test ${index} != 1; echo $?)"
    assert folder.run(text % (broken, ""), code=1) == ["a 0/3", "b c 1/3"]
    assert folder.run(text % (broken, ", continue_on_error: true")) == ["a 0/3", "b c 1/3", "d 2/3"]


def test_a_map_with_its_phases(folder: Folder) -> None:
    """Setup makes the items; filter, order and limits choose; failed items are kept; reduce and merge follow."""
    folder.repository()
    text = """
name: sweep
mode: mapreduce
env: {WIDTH: "1", LIST: items.json}
setup:
  - shell: |
      echo '{"items": [{"id": 1, "level": "low"}, {"id": 2, "level": "high", "tags": ["x"]},
                       {"id": 3, "level": "high"}, {"id": 4, "level": "high"}]}' > $LIST
  - shell: echo soon
    capture_output: moment
map:
  input: ${LIST}
  json_path: $.items[*]
  filter: level == 'high' AND !contains(tags, 'y')
  sort_by: id DESC NULLS LAST
  max_parallel: $WIDTH
  agent_template:
    - shell: ./step "${item.id} ${item.tags[0]:-none} $moment"
    - shell: ./step "check ${item.id}" $(test ${item.id} = 3; echo $((1 - $?)))
    - on_failure: {claude: "/fix ${item.id}", max_attempts: 2}
    - shell: ./step "last ${item.id}" $(test ${item.id} = 2; echo $((2 - 2 * $?)))
reduce:
  - shell: ./step "${map.successful} of ${map.total}, ${map.failed} failed"
merge:
  - claude: /merge ${merge.source_branch}
"""
    assert folder.run(text) == [
        "4 none soon", "check 4", "last 4",
        "3 none soon", "check 3", "agent: /fix 3", "check 3", "last 3",
        "2 x soon", "check 2", "last 2",
        "2 of 3, 1 failed",
        "agent: /merge main",
    ]  # fmt: skip
    assert folder.document["maps"]["map"]["dead_letters"] == 1
    assert folder.document["workflow"] == "sweep"


def test_retries_wait_and_choose(folder: Folder) -> None:
    """`retry` counts executions; with `retry_on` only failures that speak of something are tried again."""
    text = """
- shell: ./step a 2
  retry: {attempts: 3, backoff: fixed, initial_delay: 1ms}
- shell: ./step b 9
  retry: {attempts: 3, initial_delay: 1ms, retry_on: [{pattern: "b is BROKEN"}], on_failure: continue}
- shell: ./step c 9
  retry: {attempts: 3, initial_delay: 1ms, retry_on: [network], on_failure: {fallback: {command: ./step d}}}
"""
    assert folder.run(text) == ["a", "a", "a", "b", "b", "b", "c", "d"]
    assert list(folder.status.values()) == ["completed", "tolerated", "recovered"]


def test_items_that_commit_have_a_worktree_each(folder: Folder) -> None:
    """Also where nothing says that they must: side by side they would take each other's place in the index."""
    folder.repository()
    text = """
mode: mapreduce
map:
  input: ["one", "two", "three", "four"]
  agent_template:
    - shell: echo ${item} > ${item}.txt && git add ${item}.txt
    - shell: git commit -qm "add ${item}" || exit 7
reduce:
  - shell: ls *.txt | tr '\\n' ' '
    capture: found
  - shell: ./step "${found}"
"""
    assert folder.run(text, "--max-parallel", "4") == ["four.txt one.txt three.txt two.txt"]
    log = subprocess.run(["git", "log", "--format=%s"], cwd=folder.path, capture_output=True, text=True, check=True)
    added = sorted(line for line in log.stdout.split("\n") if line.startswith("add"))
    assert added == ["add four", "add one", "add three", "add two"]


@pytest.mark.parametrize("is_checkout", [True, False])
def test_items_that_neither_commit_nor_ask_an_agent(folder: Folder, is_checkout: bool) -> None:
    """In a git checkout each has a worktree, and what it does not commit is gone; elsewhere they run in place."""
    if is_checkout:
        folder.repository()
    text = """
mode: mapreduce
map:
  input: [one, two]
  agent_template: [{shell: "pwd > ${item}.txt; basename $(pwd)"}]
reduce:
  - {shell: "echo ${map.successful} $(ls one.txt two.txt 2>/dev/null)", capture_output: found}
  - {shell: "./step '${found}'"}
"""
    assert folder.run(text) == ["2" if is_checkout else "2 one.txt two.txt"]
    said = folder.program.call("run", "flow.yml", code=0).stderr
    assert ("what it does not commit is discarded with it" in said) == is_checkout
    if is_checkout:
        assert len(folder.git("worktree", "list")) == 1
        assert folder.git("branch", "--list", "prodigy-agent-*") == []


AGENTS = """
mode: mapreduce
map:
  input: [one, two, three]
  agent_template:
    - claude: /commit ${item}
    - shell: "! test ${item} = two"
reduce:
  - shell: MERGE
    commit_required: true
"""


def test_items_that_ask_an_agent_have_a_worktree_on_a_branch_with_the_name_that_prodigy_gives_it(
    folder: Folder,
) -> None:
    """The agent runs on `prodigy-agent-…-item_N`; the branch of an item that failed stays, those merged are gone."""
    folder.repository()
    folder.program.env["AGENT_BRANCHES"] = "1"
    folder.run(AGENTS.replace("MERGE", "git commit -q --allow-empty -m reduced"))
    seen = (folder.path / "branches").read_text().split()
    [left] = folder.git("branch", "--list", "prodigy-agent-*", "--format=%(refname:short)")
    assert re.fullmatch(r"prodigy-agent-[0-9a-f]{16}-wf1_j\d+-item_1", left)
    assert sorted(seen) == [left.replace("item_1", f"item_{number}") for number in range(3)]


@pytest.mark.parametrize("pattern", ["prodigy-agent-*", "'prodigy-agent-*'"])
def test_a_file_that_merges_the_branches_of_its_items_does_it(folder: Folder, pattern: str) -> None:
    """Items are not merged before; the merge has the commits of those that succeeded, as its parents."""
    folder.repository()
    folder.run(AGENTS.replace("MERGE", f"git merge -q --no-ff -m joined {pattern}"))
    assert folder.status == {"map": "completed", "reduce-1": "completed"}
    subject, *parents = folder.git("log", "-1", "--format=%s %p")[0].split()
    assert (subject, len(parents)) == ("joined", 3)
    assert sorted(folder.git("log", "--format=%s")) == ["done one", "done three", "joined", "start"]
    branches = folder.git("branch", "--list", "prodigy-agent-*", "--format=%(refname:short)")
    assert [name.rpartition("-")[2] for name in branches] == ["item_0", "item_1", "item_2"]


def test_a_merge_of_items_that_all_failed_has_nothing_to_merge(folder: Folder) -> None:
    """The command still has something to name."""
    folder.repository()
    text = AGENTS.replace("test ${item} = two", "true").replace("MERGE", "git merge --no-ff prodigy-agent-*")
    folder.run(text.replace("    commit_required: true\n", ""))
    assert folder.status == {"map": "completed", "reduce-1": "completed"}
    assert folder.git("log", "--format=%s") == ["start"]


def test_a_merge_knows_what_it_merges(folder: Folder) -> None:
    """Commits and files since the run began, counted, as a list and as JSON."""
    folder.repository()
    (folder.path / ".gitignore").write_text("*\n!new\n!other\n!step\n")
    text = """
commands:
  - shell: echo 1 > new && git add new && git commit -qm 'say "a\\b"'
  - shell: echo 2 > other && rm step
merge:
  commands:
    - shell: >-
        ./said "${merge.commit_count}" "${merge.commit_ids}" "${merge.file_count}" "${merge.file_list}"
        "${merge.commits}" "${merge.modified_files}" "${merge.target_branch}" "${merge.worktree}"
"""
    (folder.path / "said").write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$TRACE"\n')
    (folder.path / "said").chmod(0o755)
    said = folder.run(text)
    short, full = folder.git("log", "-1", "--format=%h %H")[0].split()
    assert said[:4] == ["1", short, "3", "new, other, step"]
    [commit] = json.loads(said[4])
    assert (commit["id"], commit["short_id"], commit["author"], commit["message"]) == (full, short, "a", 'say "a\\b"')
    assert json.loads(said[5]) == [
        {"path": "new", "modification_type": "Added"},
        {"path": "other", "modification_type": "Added"},
        {"path": "step", "modification_type": "Deleted"},
    ]
    assert said[6:] == ["main", str(folder.path)]


def test_the_folder_of_prodigy_is_there(folder: Folder) -> None:
    """Files are kept in `.prodigy`, which Prodigy makes: in the caller's folder and in the worktree of each item."""
    folder.repository()
    text = """
mode: mapreduce
setup:
  - shell: echo '["a"]' > .prodigy/items.json
map:
  input: .prodigy/items.json
  agent_template:
    - shell: echo ${item} > .prodigy/note && ./step "in ${item}"
    - shell: git commit -q --allow-empty -m ${item}
"""
    (folder.path / ".gitignore").write_text("trace\n")
    subprocess.run(["git", "add", "step", ".gitignore"], cwd=folder.path, check=True)
    subprocess.run(["git", "commit", "-qm", "step"], cwd=folder.path, check=True)
    folder.run(text)
    assert folder.status == {".prodigy": "completed", "setup-1": "completed", "map": "completed"}
    assert folder.document["maps"]["map"]["successful"] == 1
    assert folder.run("- shell: ./step plain\n") == ["plain"]
    assert folder.status == {"step-1": "completed"}


def test_a_text_of_several_lines_in_json_is_taken(folder: Folder) -> None:
    """A shell puts it there as it is; what is no JSON otherwise is still refused."""
    text = """
- shell: printf 'one\\ntwo\\n'
  capture: report
- shell: |
    echo '{"report": "${report}", "n": %s}'
  capture: whole
  capture_format: json
- shell: ./step "${whole.n} ${whole.report}"
"""
    assert folder.run(text % "1") == ["1 one", "two"]
    for value in ("NaN", "1,", "x"):
        assert folder.run(text % value, code=1) == []
