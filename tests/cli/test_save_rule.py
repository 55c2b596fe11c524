"""`judge --save-rule`: the file has a rule that decides next time, and is the same otherwise."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from resile.commands.files.rule_words import Verdict
from resile.commands.files.save_rule import draft
from resile.commands.judge import ParkedStep
from resile.dialects.compile import compile_text
from resile.errors import ResileError
from resile.model.failure import Failure, Kind
from tests.cli.program import Program

HEAD = "# Grüße\nresile: 1\nname: flow   # the name\n\n"
BLOCK = (
    HEAD
    + """\
# the work
steps:
  solve:
    # try hard
    shell: "echo try >> effects; echo 'no luck 17' >&2; test -e mended"
    park: true  # held

  # last
  report: {shell: echo report >> effects, needs: [solve]}
"""
)
ADDED_TO_BLOCK = (
    HEAD.rstrip("\n")
    + """
failure_handlers:
  solve:
    rules:
      - RULE

# the work
steps:
  solve:
    # try hard
    shell: "echo try >> effects; echo 'no luck 17' >&2; test -e mended"
    park: true  # held
    failure_handler: solve

  # last
  report: {shell: echo report >> effects, needs: [solve]}
"""
)
MATCH = "exit_codes: [1], pattern: 'no luck [0-9]+'"


def parks(program: Program, text: str, name: str = "flow.yaml") -> Path:
    """The file of a run that waits for judgement."""
    program.call("run", program.write(text, name), code=4)
    return program.folder / name


def effects(program: Program) -> list[str]:
    return (program.folder / "effects").read_text().split()


@pytest.mark.parametrize(
    ("words", "rule", "code", "after"),
    [
        (("retry",), f"{{{MATCH}, max_retries: 3}}", 4, ["try"] * 4),
        (("skip",), f"{{then: recovered, {MATCH}}}", 0, ["try", "report"]),
        (("skip", "--output", "it's fine"),
         f"{{then: fallback, {MATCH}, commands: ['printf %s ''it''\"''\"''s fine''']}}", 0, ["try", "report"]),
        (("fail",), f"{{then: fail, {MATCH}}}", 1, ["try"]),
        (("retry-with", "--memory", "8g"),
         f"{{{MATCH}, max_retries: 3}}  # judged retry-with --memory 8g: see `resources` of the step", 4, ["try"] * 4),
    ],
)  # fmt: skip
def test_each_verdict(program: Program, words: tuple[str, ...], rule: str, code: int, after: list[str]) -> None:
    """The rule decides as the judge did; nothing else in the file has changed, its mode included."""
    path = parks(program, BLOCK)
    path.chmod(0o640)
    shown = program.call("judge", "1", "solve", *words, "--save-rule", "--yes", code=0).stderr
    assert f"+      - {rule}\n" in shown
    assert path.read_text() == ADDED_TO_BLOCK.replace("RULE", rule)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert not list(program.folder.glob("*.part"))
    (program.folder / "effects").unlink()
    program.call("run", "flow.yaml", code=code)
    assert effects(program) == after


def test_a_saved_retry_recovers_the_step(program: Program) -> None:
    """What the judge retried by hand, the next run retries by itself."""
    text = BLOCK.replace("test -e mended", "test -e mended || { touch mended; exit 75; }")
    path = parks(program, text)
    program.call("judge", "1", "solve", "retry", "--save-rule", "--yes", code=0)
    assert "- {exit_codes: [75], max_retries: 3}" in path.read_text()
    (program.folder / "mended").unlink()
    assert "retry  solve  attempt 1" in program.call("run", "flow.yaml", code=0).stdout


def test_unconfirmed(program: Program) -> None:
    """Without --yes and a terminal the difference is shown, and nothing is judged or written."""
    path = parks(program, BLOCK)
    ended = program.call("judge", "1", "solve", "skip", "--save-rule", code=1)
    assert f"+      - {{then: recovered, {MATCH}}}\n" in ended.stderr
    assert path.read_text() == BLOCK
    assert len(program.json("parked", "1")["failures"]) == 1


def test_yes_belongs_to_the_rule(program: Program) -> None:
    """--yes alone confirms nothing."""
    parks(program, BLOCK)
    assert "--yes goes with --save-rule" in program.call("judge", "1", "solve", "skip", "--yes", code=2).stderr


STYLES = {
    "flow step": (
        "resile: 1\nname: x\nsteps:\n  a: {shell: exit 7, park: true}  # held\n",
        "resile: 1\nname: x\nfailure_handlers:\n  a:\n    rules:\n      - {then: recovered, exit_codes: [7]}\n"
        "steps:\n  a: {shell: exit 7, park: true, failure_handler: a}  # held\n",
    ),
    "all in flow style": (
        "{resile: 1, name: x, steps: {a: {shell: exit 7, park: true, }}}",
        "{resile: 1, name: x, steps: {a: {shell: exit 7, park: true, failure_handler: a, }}, "
        "failure_handlers: {a: {rules: [{then: recovered, exit_codes: [7]}]}}}",
    ),
    "handler of its own": (
        "resile: 1\nname: x\nfailure_handlers:\n  h:\n    rules:\n    - exit_codes: [9]\n      max_retries: 1\n"
        "      # nine\n\nsteps:\n  a:\n    failure_handler: h\n    park: true\n    shell: |\n      exit 7\n",
        "resile: 1\nname: x\nfailure_handlers:\n  h:\n    rules:\n    - exit_codes: [9]\n      max_retries: 1\n"
        "    - {then: recovered, exit_codes: [7]}\n"
        "      # nine\n\nsteps:\n  a:\n    failure_handler: h\n    park: true\n    shell: |\n      exit 7\n",
    ),
    "handlers of others": (
        "resile: 1\nname: x\nfailure_handlers:\n  a: {rules: [{exit_codes: [9]}]}\nsteps:\n"
        "  b: {shell: 'true', failure_handler: a}\n  a:\n    park: true\n    shell: |\n      exit 7\n",
        "resile: 1\nname: x\nfailure_handlers:\n  a: {rules: [{exit_codes: [9]}]}\n"
        "  a-judged:\n    rules:\n      - {then: recovered, exit_codes: [7]}\nsteps:\n"
        "  b: {shell: 'true', failure_handler: a}\n  a:\n    park: true\n    shell: |\n      exit 7\n"
        "    failure_handler: a-judged\n",
    ),
    "lines that end as on Windows": (
        "resile: 1\r\nname: x\r\nsteps:\r\n  a:\r\n    shell: exit 7\r\n    park: true",
        "resile: 1\r\nname: x\r\nfailure_handlers:\r\n  a:\r\n    rules:\r\n"
        "      - {then: recovered, exit_codes: [7]}\r\nsteps:\r\n  a:\r\n    shell: exit 7\r\n    park: true\r\n"
        "    failure_handler: a",
    ),
}


@pytest.mark.parametrize("style", STYLES)
def test_styles(program: Program, style: str) -> None:
    """The rule is written in the style of its surroundings; the other bytes stay."""
    before, after = STYLES[style]
    path = program.folder / "flow.yaml"
    path.write_bytes(before.encode())
    program.call("run", "flow.yaml", code=4)
    program.call("judge", "1", "a", "skip", "--save-rule", "--yes", code=0)
    assert path.read_bytes().decode() == after
    program.call("run", "flow.yaml", code=0)


def test_json(program: Program) -> None:
    """JSON stays JSON."""
    path = parks(program, '{"resile": 1, "name": "x", "steps": {"a": {"shell": "exit 7", "park": true}}}', "flow.json")
    program.call("judge", "1", "a", "fail", "--save-rule", "--yes", code=0)
    assert path.read_text() == (
        '{"resile": 1, "name": "x", "steps": {"a": {"shell": "exit 7", "park": true, "failure_handler": "a"}}, '
        '"failure_handlers": {"a": {"rules": [{"then": "fail", "exit_codes": [7]}]}}}'
    )
    program.call("run", "flow.json", code=1)


def test_more_time_after_a_timeout(program: Program) -> None:
    """A grant that rules can make becomes one."""
    text = "resile: 1\nname: x\nsteps:\n  a: {shell: sleep 60, park: true, resources: {runtime: 1s}}\n"
    path = parks(program, text)
    program.call("judge", "1", "a", "retry-with", "--runtime", "90s", "--save-rule", "--yes", code=0)
    rule = "- {then: retry, kinds: [timeout], limit: 3, escalate: {factor: 90.0, runtime_max: '90s'}}"
    assert rule in path.read_text()


def test_a_signal(program: Program) -> None:
    """A signal is matched by its name."""
    path = parks(program, "resile: 1\nname: x\nsteps:\n  a: {shell: kill -TERM $$, park: true}\n")
    program.call("judge", "1", "a", "skip", "--save-rule", "--yes", code=0)
    assert "- {then: recovered, signals: [TERM]}" in path.read_text()
    program.call("run", "flow.yaml", code=0)


SHARED = """\
resile: 1
name: x
failure_handlers: {h: {rules: [{exit_codes: [9]}]}}
steps:
  a: {shell: exit 7, park: true, failure_handler: h}
  b: {shell: 'true', failure_handler: h}
"""
PARKED_FIRST = "resile: 1\nname: x\nsteps: {a: {shell: exit 7, ir: {rules: [{then: park}]}}}\n"
ALIAS = "resile: 1\nname: x\nsteps:\n  a: &same {shell: exit 7, park: true}\n  b: *same\n"
REFUSED = {
    "a shared handler": (SHARED, ("skip",), "the rule would change more than the step 'a': steps[b].rules"),
    "a rule above parks": (PARKED_FIRST, ("skip",), "the rule at flow.yaml:3:41 parks the failure before"),
    "an alias": (ALIAS, ("skip",), "the rule would change more than the step 'a': steps[b].rules"),
    "an output that is no text": (SHARED, ("skip", "--output", "[1]"), "a rule can give one line of text"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(program: Program, case: str) -> None:
    """Where the rule can't be saved nothing is judged, and the file stays."""
    text, words, message = REFUSED[case]
    path = parks(program, text)
    ended = program.call("judge", "1", "a", *words, "--save-rule", "--yes", code=2)
    assert message in ended.stderr
    assert path.read_text() == text
    assert "a" in [failure["step"] for failure in program.json("parked", "1")["failures"]]


def test_a_file_that_has_changed(program: Program) -> None:
    """A changed file takes the rule if it still has the step."""
    path = parks(program, BLOCK)
    path.write_text(BLOCK.replace("  solve:", "  other:").replace("[solve]", "[other]"))
    ended = program.call("judge", "1", "solve", "skip", "--save-rule", "--yes", code=2)
    assert "has no step 'solve'; it may have changed since the run started" in ended.stderr
    path.write_text("# a new line\n" + BLOCK)
    program.call("judge", "1", "solve", "skip", "--save-rule", "--yes", code=0)
    assert "    failure_handler: solve\n" in path.read_text()


def test_a_torc_file(program: Program) -> None:
    """The rule is printed in Torc's words; its rules can only try again."""
    text = "name: x\nuse_pending_failed: true\njobs:\n  - {name: a, command: exit 7}\n"
    path = parks(program, text)
    for verdict in ("skip", "fail"):
        refused = program.call("judge", "1", "a", verdict, "--save-rule", code=2).stderr
        assert {"skip": "can try again, but not skip", "fail": "can't let a step fail"}[verdict] in refused
    shown = program.call("judge", "1", "a", "retry", "--save-rule", code=0).stderr
    assert "      - exit_codes: [7]\n        max_retries: 3\n" in shown
    assert path.read_text() == text
    handler, job = shown.split("# and in the job a:\n")
    rest = text.replace("exit 7}", f"'test -e done || {{ touch done; exit 7; }}', {job.splitlines()[0]}}}")
    path.write_text(handler + rest)
    program.call("run", "flow.yaml", code=0)


# Files of systems that park nothing by a key: what `judge` would print is put into the file by hand, and runs.
SYSTEM_FILES = {
    "prodigy": '- shell: "COMMAND"\n  RULE\n- shell: touch after\n',
    "visor": "version: '1.0'\nsteps:\n  a:\n    type: command\n    exec: \"COMMAND\"\n    RULE\n"
    "  b: {type: command, exec: touch after, depends_on: [a]}\n",
    "noetl": "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: p}\nworkflow:\n"
    '- step: start\n  tool: {kind: shell, command: "COMMAND"}\n  RULE\n  next: [{step: b}]\n'
    "- {step: b, tool: {kind: shell, command: touch after}}\n",
}
ONCE = "test -e done || { touch done; echo 'no luck 17' >&2; exit 7; }"


def rule_for(dialect: str, verdict: Verdict, kind: Kind = Kind.EXIT) -> str:
    """The rule that a judgement of the first step of a file becomes."""
    text = re.sub(r" *RULE\n", "", SYSTEM_FILES[dialect]).replace("COMMAND", "exit 7")
    workflow = compile_text(text, file="flow.yaml", folder="/", dialect=dialect).workflow
    assert workflow is not None
    step = next(one for one in workflow.steps if one.name not in ("begin", "b", "end"))
    code = 7 if kind is Kind.EXIT else None
    failure = Failure(kind=kind, message="exit code 7: no luck 17", exit_code=code, stderr="no luck 17\n")
    return draft(ParkedStep(workflow, step, failure), verdict).text


@pytest.mark.parametrize("dialect", SYSTEM_FILES)
@pytest.mark.parametrize("word", ["retry", "skip"])
def test_a_rule_in_the_words_of_another_system(program: Program, dialect: str, word: str) -> None:
    """The file with the rule, which is printed, answers the failure as the judge did."""
    rule = rule_for(dialect, Verdict(word=word))
    lines = [line for line in rule.splitlines() if not line.startswith("#")]
    template = SYSTEM_FILES[dialect]
    indent = template[: template.index("RULE")].rpartition("\n")[2]
    text = template.replace("RULE", f"\n{indent}".join(lines)).replace("COMMAND", ONCE)
    done = program.call("run", program.write(text, "flow.yaml"), "--dialect", dialect, code=None)
    assert (program.folder / "after").exists(), done
    if word == "retry":
        assert done.returncode == 0, done


def test_what_another_system_can_not_say() -> None:
    """Why there is no such rule, or what the rule lacks."""
    for dialect in SYSTEM_FILES:
        with pytest.raises(ResileError, match="can't let a step fail"):
            rule_for(dialect, Verdict(word="fail"))
        with pytest.raises(ResileError, match="can't give an output"):
            rule_for(dialect, Verdict(word="skip", output="x"))
        more = rule_for(dialect, Verdict(word="retry-with", memory="8g", memory_bytes=2**33))
        assert "has no key that gives a step memory 8g" in more
    with pytest.raises(ResileError, match="no key of Prodigy skips a step"):
        rule_for("prodigy", Verdict(word="skip"), Kind.TIMEOUT)
    assert "answers every failure" in rule_for("visor", Verdict(word="retry"))
