"""`resile migrate`: what it prints and writes, what it says besides, and when it refuses."""

from __future__ import annotations

from tests.cli.program import Program

OLD = "- shell: echo a\n- shell: echo b\n  on_failure: echo fix\n"
NEW = """# From old.yml, a file of prodigy; written by `resile migrate`.
resile: 1
name: old
steps:
  - shell: echo a
  # as in Prodigy, a step that stays failed after its handler does not fail the workflow
  # the step counts as recovered once its handler passes: nothing checks that it works now
  - shell: echo b
    on_failure:
      commands: echo fix
      fail_workflow: false
"""


def test_to_stdout(program: Program) -> None:
    """The file alone on stdout, each difference with its line on stderr."""
    program.write(OLD, "old.yml")
    done = program.call("migrate", "old.yml", code=0)
    assert done.stdout == NEW
    assert done.stderr.startswith(
        "old.yml:3:3: notice: as in Prodigy, a step that stays failed after its handler does not fail"
    )
    assert sorted(path.name for path in program.folder.iterdir()) == ["old.yml"]


def test_to_a_file(program: Program) -> None:
    """The file is written whole; what is there already is only written over when that is asked for."""
    program.write(OLD, "old.yml")
    done = program.call("migrate", "old.yml", "-o", "new.yaml", code=0)
    assert (program.folder / "new.yaml").read_text() == NEW
    assert done.stdout == ""
    assert done.stderr.endswith("new.yaml: written, 2 differences to know of\n")
    program.write("mine", "new.yaml")
    refused = program.call("migrate", "old.yml", "-o", "new.yaml", code=2)
    assert refused.stderr == "resile: error: new.yaml is there already\n  hint: --force writes over it\n"
    assert (program.folder / "new.yaml").read_text() == "mine"
    program.call("migrate", "old.yml", "-o", "new.yaml", "--force", code=0)
    assert (program.folder / "new.yaml").read_text() == NEW


def test_json(program: Program) -> None:
    """Where it went and each difference; without a file the text comes along."""
    program.write(OLD, "old.yml")
    document = program.json("migrate", "old.yml")
    assert document.keys() == {"version", "out", "differences", "text"}
    assert (document["out"], document["text"]) == (None, NEW)
    assert [(found["code"], found["line"]) for found in document["differences"]] == [
        ("tolerated", 3),
        ("unchecked", 3),
    ]
    assert program.json("migrate", "old.yml", "-o", "new.yaml") == {
        "version": 1,
        "out": "new.yaml",
        "differences": document["differences"],
    }


def test_a_file_that_does_not_compile(program: Program) -> None:
    """Exit 2, the findings, and nothing is written."""
    program.write("- shel: x\n  shell: y\n", "old.yml")
    document = program.json("migrate", "old.yml", "-o", "new.yaml", code=2)
    assert [found["code"] for found in document["diagnostics"]] == ["unknown-key"]
    assert not (program.folder / "new.yaml").exists()


def test_code_that_does_not_parse_is_refused(program: Program) -> None:
    """What `run` would refuse is not translated either."""
    program.write("resile: 1\nsteps: {a: {shell: x, when: '(('}}\n")
    document = program.json("migrate", "flow.yaml", code=2)
    assert [found["code"] for found in document["diagnostics"]] == ["expression"]


def test_into_another_folder(program: Program) -> None:
    """Files beside the old one are found from the new one, and it runs."""
    (program.folder / "flows").mkdir()
    program.write("TOLD=from the file\n", "flows/.env")
    program.write("resile: 1\nenv_files: .env\nsteps: [{shell: 'echo $TOLD > told'}]\n", "flows/flow.yaml")
    program.call("migrate", "flows/flow.yaml", "-o", "flow.yaml", code=0)
    program.call("run", "flow.yaml", code=0)
    assert (program.folder / "told").read_text() == "from the file\n"


def test_a_native_file_becomes_an_equivalent_one(program: Program) -> None:
    """Aliases and long forms go, the meaning stays; a second time changes nothing."""
    program.write(
        "resile: 1\nname: nightly\nsteps:\n- {name: a, claude: hi, timeout: 60, on_fail: {retry: {max: 1}}}\n"
        "- {shell: x, on_failure: true}\n"
    )
    first = program.call("migrate", "flow.yaml", code=0).stdout
    assert first.split("\n", 1)[1] == (
        "resile: 1\nname: nightly\nsteps:\n  - id: a\n    agent: hi\n    timeout: 1m\n    retry: 1\n"
        "  - shell: x\n    on_failure: true\n"
    )
    program.write(first)
    assert program.call("migrate", "flow.yaml", code=0).stdout.split("\n", 1)[1] == first.split("\n", 1)[1]
