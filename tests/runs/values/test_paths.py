"""`write_file`: a value never leads out of the folder in which it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import Program
from tests.runs.values.conftest import failure_of

FLOW = """\
resile: 1
name: flow
inputs: {a: {default: x}, b: {default: y}}
steps:
  write:
    write_file: {path: "PATH", content: text}
"""
TEMPLATES = """\
resile: 1
name: flow
ir: {templates: LANGUAGE}
steps:
  write: {write_file: {path: "out/{{ 'VALUE' }}", content: text}}
"""


def files(folder: Path) -> list[str]:
    """The files below a folder that steps wrote, by their paths."""
    ours = ("work/output/", "work/resile.db", "work/flow.yaml")
    found = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.startswith(ours))


@pytest.mark.parametrize(
    ("path", "a", "b", "written"),
    [
        ("${inputs.a}", "sub/f.txt", "", "work/sub/f.txt"),
        ("${inputs.a}", "s/../f.txt", "", "work/f.txt"),
        ("../up/${inputs.a}.txt", "f", "", "up/f.txt"),
        ("{root}/abs/${inputs.a}", "f", "", "abs/f"),
        ("out/${inputs.a}/../${inputs.b}", "x", "f", "work/out/f"),
        ("out-${inputs.a}", "../f", "", "work/out-../f"),
        ("out/${inputs.a}..txt", ".", "", "work/out/...txt"),
        ("out/${inputs.a}", "/f", "", "work/out/f"),
        ("${raw:inputs.a}/${inputs.b}", "../up", "f", "up/f"),
        ("${raw:inputs.a}", "{root}/f", "", "f"),
    ],
)
def test_paths_that_stay(program: Program, path: str, a: str, b: str, written: str) -> None:
    """The file's own text and raw values lead anywhere, other values below the folder before them."""
    root = str(program.folder.parent)
    program.write(FLOW.replace("PATH", path.replace("{root}", root)))
    words = ["--input", f"a={a.replace('{root}', root)}", "--input", f"b={b}"]
    program.call("run", "flow.yaml", *words, code=0)
    assert files(program.folder.parent) == [written]


@pytest.mark.parametrize(
    ("path", "a", "b", "name", "folder"),
    [
        ("${inputs.a}", "../f", "", "a", "work"),
        ("${inputs.a}", "/nowhere/f", "", "a", "work"),
        ("${inputs.a}", "s/../../f", "", "a", "work"),
        ("${inputs.a}/f", "..", "", "a", "work"),
        ("${inputs.a}./f", ".", "", "a", "work"),
        ("${inputs.a}${inputs.b}/f", ".", ".", "a", "work"),
        ("out/${inputs.a}/f", "../..", "", "a", "work/out"),
        ("out/${inputs.a}", "../f", "", "a", "work/out"),
        ("${inputs.a}/${inputs.b}", "s", "../f", "b", "work/s"),
        ("{root}/abs/${inputs.a}", "../f", "", "a", "abs"),
        ("${inputs.a}/f", "link", "", "a", "work"),
        ("${inputs.a}", "link/f", "", "a", "work"),
        ("s/${inputs.a}", "link/f", "", "a", "work/s"),
    ],
)
def test_values_that_lead_out(program: Program, path: str, a: str, b: str, name: str, folder: str) -> None:
    """The step fails before it writes, and says which value and how to allow it."""
    root = program.folder.parent
    (root / "other").mkdir()
    (program.folder / "s").mkdir()
    for place in (program.folder, program.folder / "s"):
        (place / "link").symlink_to(root / "other")
    program.write(FLOW.replace("PATH", path.replace("{root}", str(root))))
    value = {"a": a, "b": b}[name]
    assert failure_of(program, "--input", f"a={a}", "--input", f"b={b}") == (
        f"the value of `${{inputs.{name}}}`, {value!r}, leads out of the folder {root / folder}; "
        f"`${{raw:inputs.{name}}}` may lead anywhere"
    )
    assert files(root) == []


def test_the_folder_is_that_of_the_step(program: Program) -> None:
    """With `working_dir` a value stays in it."""
    program.write(FLOW.replace("PATH", "${inputs.a}") + "    working_dir: deep\n")
    (program.folder / "deep").mkdir()
    said = failure_of(program, "--input", "a=../f")
    assert f"leads out of the folder {program.folder / 'deep'};" in said
    program.call("run", "flow.yaml", "--input", "a=f", code=0)
    assert files(program.folder.parent) == ["work/deep/f"]


@pytest.mark.parametrize(
    ("path", "content"), [("taken", '"text"'), ("taken", '"[]", format: json'), ("f", '"text ${steps.lost.output}"')]
)
def test_a_file_that_fails_leaves_nothing(program: Program, path: str, content: str) -> None:
    """A `write_file` that fails leaves no part of its content behind."""
    (program.folder / "taken").mkdir()
    lost = '  lost: {shell: "echo x; rm -r $RESILE_OUTPUT_DIR/runs/*/launcher"}\n'
    text = (
        FLOW.replace("PATH", path)
        .replace("content: text", f"content: {content}")
        .replace("  write:\n", f"{lost}  write:\n    needs: [lost]\n")
    )
    program.write(text)
    program.call("run", "flow.yaml", code=1)
    assert files(program.folder.parent) == []


def test_a_link_at_the_end_is_replaced(program: Program) -> None:
    """A value may name a link: the file takes its place, and the target stays as it is."""
    target = program.folder.parent / "target"
    target.write_text("untouched")
    (program.folder / "f").symlink_to(target)
    program.write(FLOW.replace("PATH", "${inputs.a}"))
    program.call("run", "flow.yaml", "--input", "a=f", code=0)
    assert (target.read_text(), (program.folder / "f").read_text()) == ("untouched", "text")


def test_outputs_of_templates_stay_too(program: Program) -> None:
    """In a file with Liquid or Jinja templates an output can't lead out either."""
    for language in ("liquid", "jinja"):
        flow = TEMPLATES.replace("LANGUAGE", language)
        program.write(flow.replace("VALUE", "f"))
        program.call("run", "flow.yaml", code=0)
        assert files(program.folder.parent) == ["work/out/f"]
        program.write(flow.replace("VALUE", "../g"))
        said = failure_of(program)
        assert said == f"the value of `out/{{{{ '../g' }}}}`, '../g', leads out of the folder {program.folder / 'out'}"
    assert files(program.folder.parent) == ["work/out/f"]


@pytest.mark.parametrize(
    "step",
    [
        "write_file: {path: out/$ARG, content: '1'}",
        "write_file: {path: out/$ARG, content: '1', format: json}",
        "write_file: {path: out/$ARG, content: '1', format: yaml}",
        "{shell: echo 1, output_file: out/$ARG}",
    ],
)
def test_prodigy_files_write_in_their_folder(program: Program, step: str) -> None:
    """`write_file` in each format, and `output_file`, hold an argument in their folder."""
    program.write(f"- {step}\n")
    said = failure_of(program, "--input", "ARG=../../f")
    assert f"'../../f', leads out of the folder {program.folder / 'out'};" in said
    assert files(program.folder.parent) == []
    program.call("run", "flow.yaml", "--input", "ARG=f", code=0)
    assert (program.folder / "out" / "f").read_text() in ("1", "1\n")
