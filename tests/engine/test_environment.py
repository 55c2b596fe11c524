"""Environment variables in texts and code: the caller's, over them the workflow's, over them the step's."""

from __future__ import annotations

from tests.engine.conftest import Place, statuses

SECRET = "s3cr3t-value"


def test_texts_code_and_commands_know_the_same_variables(place: Place) -> None:
    """A value may name those before it, and its own name is then what lies below."""
    text = """
resile: 1
env: {DEPLOY: "yes", WHO: "${env.WHO}!", BOTH: "${env.WHO}-${env.DEPLOY}"}
steps:
  - {id: code, shell: "echo $WHO ${env.WHO} $BOTH > code", when: "env.DEPLOY === 'yes' && env.WHO === 'me!'"}
  - {id: one, shell: "true", when: "${env.DEPLOY}"}
  - id: own
    shell: echo "$WHO" "${env.WHO}" "$P" "${env.Q}" > own
    env: {WHO: "${env.WHO}?", P: "x ${env.DEPLOY}", Q: "<${env.P}>"}
    when: "env.Q === '<x yes>' && ${env.WHO} === 'me!?'"
  - {id: other, shell: "true", when: "env.P !== undefined"}
"""
    code, document = place.run(text, env={"WHO": "me"})
    expected = dict.fromkeys(("code", "one", "own", "end"), "completed") | {"other": "skipped"}
    assert (code, statuses(document)) == (0, expected)
    assert place.text("code") == "me! me! me!-yes\n"
    assert place.text("own") == "me!? me!? x yes <x yes>\n"


def test_a_child_and_a_repair_know_their_own(place: Place) -> None:
    """A child workflow has its own variables and not its parent's; a handler has those of its step."""
    (place.folder / "child.yaml").write_text(
        "resile: 1\nenv: {A: child}\nsteps:\n  c: {shell: 'echo \"${env.A}-${env.B}\" >> out'}\n"
    )
    text = """
resile: 1
env: {A: parent, B: "1"}
steps:
  - {id: run, workflow: child.yaml}
  - {id: bad, shell: exit 1, env: {B: "2"}, on_failure: {shell: "echo ${env.A}-${env.B} >> out"}}
"""
    code, _ = place.run(text)
    assert (code, place.text("out")) == (0, "child-\nparent-2\n")


def test_secrets_in_them_stay_hidden_from_code(place: Place) -> None:
    """The command has the value; code sees stars, and so does the log, also that of code that throws."""
    text = """
resile: 1
secrets: [TOK]
env: {T: "x${env.TOK}"}
steps:
  a: {shell: "printf '%s' \\"$T\\" > seen", when: "env.T === 'x***' && env.TOK === '***'"}
  b: {shell: 'true', needs: a, when: "env.T.nothing.here"}
"""
    code, document = place.run(text, env={"TOK": SECRET})
    found = statuses(document)
    assert (code, found["a"], found["b"], place.text("seen")) == (1, "completed", "failed", f"x{SECRET}")
    assert SECRET not in str(place.events(1))


def test_a_variable_that_no_environment_takes_fails_its_step(place: Place) -> None:
    """What asks before that goes by the caller's variables."""
    text = """
resile: 1
steps:
  - {id: nul, shell: "printf 'a\\\\0b'"}
  - {id: use, shell: touch ran, env: {V: "${steps.nul.output}"}, when: "env.V === undefined && env.WHO === 'me'"}
"""
    code, document = place.run(text, env={"WHO": "me"})
    assert (code, statuses(document)["use"]) == (1, "failed")
    assert document["first_failure"]["kind"] == "contract"
    assert not (place.folder / "ran").exists()


def test_a_repair_in_a_rerun_knows_the_epoch(place: Place) -> None:
    """The variables of a repair name the epoch that runs, also where a rerun began it."""
    text = """
resile: 1
steps:
  - id: a
    shell: exit 3
    on_failure:
      - shell: echo $RESILE_RUN_ID $TORC_RUN_ID >> seen
"""
    place.run(text)
    place.call("rerun", "1")
    assert place.text("seen") == "1 1\n2 2\n"
