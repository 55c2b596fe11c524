"""Control characters from steps, items and files: harmless on a terminal, unchanged in a pipe."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.cli.program import Program
from tests.cli.terminal import Terminal

TITLE = b"\x1b]0;owned\x07"
CLIPBOARD = b"\x1b]52;c;b3duZWQ=\x1b\\"
ATTACKS = {
    "title": TITLE,
    "clipboard": CLIPBOARD,
    "device control": b"\x1bP1$r\x1b\\",
    "cursor": b"\x1b[2A\x1b[1;1H\x1b[s",
    "erase": b"\x1b[2J\x1b[K",
    "alternate screen": b"\x1b[?1049h",
    "report": b"\x1b[6n\x1b[c\x1b[>q",
    "reset": b"\x1bc\x1b[!p",
    "charset": b"\x1b(0\x0e",
    "bell": b"\x07\x05",
    "backspace": b"rm -rf /\x08\x08\x08\x7f",
    "return": b"true text\rfake",
    "one byte": b"\x9b2J\x9d0;owned\x9c\x90",
    "one character": "\u009b2J\u009d0;owned\u009c".encode(),
    "half an escape": b"\x1b",
    "color with a tail": b"\x1b[31;?1049hm",
    "direction": "\u202egnp.exe\u2066".encode(),
}
FLOW = """\
resile: 1
name: shown
steps:
  say: {shell: cat attack}
"""
# What a terminal may get of what is not text: line ends, tabs and colors.
ALLOWED = re.compile(r"\x1b\[[0-9;:]*m|\r\n|\t")
# What the live view adds to that: it hides the cursor, moves it up and erases lines.
LIVE = re.compile(r"\x1b\[(?:\?25[lh]|[0-9]*A|2K)|\r(?!\n)")


def dangers(raw: str) -> list[str]:
    """The control characters that reached a terminal."""
    rest = ALLOWED.sub("", raw)
    return [letter for letter in rest if ord(letter) < 32 or 127 <= ord(letter) < 160 or letter in "\u202e\u2066"]


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_logs_show_attacks_as_text(program: Program, attack: bytes) -> None:
    """A terminal gets the characters in words, `--raw` and a pipe get the bytes."""
    data = b"before " + attack + b" after\n"
    (program.folder / "attack").write_bytes(data)
    program.call_warm("run", program.write(FLOW), code=0)
    with Terminal(program, "logs", "1") as terminal:
        assert terminal.end() == 0
    assert dangers(terminal.raw) == []
    assert "before " in terminal.text
    assert " after" in terminal.text
    with Terminal(program, "logs", "1", "--raw") as terminal:
        assert terminal.end() == 0
    assert data.replace(b"\n", b"\r\n") in terminal.data
    piped = subprocess.run(
        [*program.argv, "logs", "1", "say", "--attempt", "1", "--stdout"],
        cwd=program.folder, env=program.env, capture_output=True, check=True,
    )  # fmt: skip
    assert piped.stdout == data


def test_how_characters_are_shown(program: Program) -> None:
    """An escape becomes its code, a return a new line; colors pass and end with the output; text stays as it is."""
    shown = "\x1b]0;x\x07 \x1b[1;31mred\x1b[0m \x1b[38:5:8mgrey 1\r2\r\nä€🙂\u009b\t."
    (program.folder / "attack").write_bytes(shown.encode() + b"\xff\n")
    program.call_warm("run", program.write(FLOW), code=0)
    with Terminal(program, "logs", "1") as terminal:
        assert terminal.end() == 0
    lines = terminal.raw.split("\r\n")
    assert lines[1:] == [
        r"\x1b]0;x\x07 " + "\x1b[1;31mred\x1b[0m \x1b[38:5:8mgrey 1",
        "2",
        "ä€🙂\\u009b\t.\\xff",
        "\x1b[0m",
    ]
    program.env["NO_COLOR"] = "1"
    with Terminal(program, "logs", "1") as terminal:
        assert terminal.end() == 0
    assert terminal.raw.split("\r\n")[1] == r"\x1b]0;x\x07 red grey 1"


def test_characters_that_come_in_two_parts(program: Program) -> None:
    """While following, half a character, a color or a line end waits for its other half."""
    program.write(
        "resile: 1\nname: halves\nsteps:\n  say:\n    shell: |\n"
        + "".join(
            f"      printf '{half}'; echo > seen; read line < go\n"
            for half in (r"\303", r"\244 \033", "[31", r"mred\r")
        )
        + "      printf '\\n.\\033'\n"
    )
    seen, go = program.gate("seen"), program.gate("go")
    with program.start("run", "flow.yaml") as started:
        seen.wait()
        with Terminal(program, "logs", "1", "-f") as terminal:
            terminal.until("<==")
            for shown in ("ä ", "ä ", "ä ", "red"):
                go.open()
                if shown != "red":
                    seen.wait()
                terminal.until(shown)
            assert terminal.end() == 0
        assert started.end() == 0
    assert terminal.raw.split("\r\n")[1:] == ["ä \x1b[31mred", ".\\x1b\x1b[0m"]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A run whose steps, items, inputs, files and errors all contain escapes."""
    program = Program(tmp_path_factory.mktemp("hostile"))
    evil = "\\e]0;owned\\a\\e[2J\\x9b2J"
    program.write(
        f"""\
resile: 1
name: "w{evil}"
inputs: {{text: {{default: "../i{evil}"}}}}
steps:
  a:
    shell: 'printf "\\033]0;owned\\007\\233 bad" >&2; exit 3'
    on_failure: {{max_attempts: 2, shell: 'printf "\\033]0;owned\\007"; exit 4'}}
  m:
    map:
      input: printf '["x\\u001b]0;owned\\u0007", "\\u009b2J", "y"]'
      steps: [{{id: s, shell: 'printf "%s" ${{item}} >&2; exit 5'}}]
  v:
    write_file: {{path: "${{inputs.text}}", content: y}}
  q:
    shell: 'printf "${{inputs.text}}" | cat; exit 6'
    park: true
""",
        "flow\x1b]0;owned\x07.yaml",
    )
    program.call_warm("run", "flow\x1b]0;owned\x07.yaml", code=4)
    return program


COMMANDS = (
    "run flow\x1b]0;owned\x07.yaml",
    "run flow\x1b]0;owned\x07.yaml --debug",
    "run missing\x1b]0;owned\x07.yaml",
    "check flow\x1b]0;owned\x07.yaml",
    "check flow\x1b]0;owned\x07.yaml --json",
    "migrate flow\x1b]0;owned\x07.yaml",
    "status",
    "status 1",
    "status 1 --json",
    "status \x1b]0;owned\x07",
    "explain 1",
    "explain 1 --json",
    "explain 1 a\x1b]0;owned\x07",
    "parked",
    "parked 1",
    "events list 1",
    "events list 1 --json",
    "logs 1",
    "logs 1 --json",
    "logs 1 no\x1b]0;owned\x07",
    "metrics",
    "metrics 1",
    "dlq list 1",
    "dlq list 1 --json",
    "dlq export 1",
    "dlq stats 1",
    "rehearse flow\x1b]0;owned\x07.yaml a\x1b]0;owned\x07",
    "resume 1",
    "rerun 1 --failed-only",
    "\x1b]0;owned\x07",
)


@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_hands_on_control_characters(hostile: Program, words: str) -> None:
    """Whatever stands in names, items, values and messages, a terminal gets text and colors; the live view moves."""
    live = words.startswith(("run", "resume", "rerun"))
    with Terminal(hostile, *words.split()) as terminal:
        assert terminal.end() in ((0, 1, 2, 4) if live else (0, 2))
    raw = terminal.raw
    if live:
        raw = LIVE.sub("", raw)
    assert dangers(raw) == []
    assert "\x1b]" not in terminal.raw


def test_completion_describes_runs_in_words(hostile: Program) -> None:
    """The shell prints descriptions of runs as they come, so they come escaped."""
    shown = hostile.call_warm("__complete", "--", "status", "", code=0).stdout
    assert shown.splitlines()[-1].startswith("1\tw\\x1b]0;owned\\x07")


def test_a_live_view_of_a_hostile_run(program: Program) -> None:
    """The picture that is drawn while steps run shows names in words."""
    program.write('resile: 1\nname: "w\\e]0;owned\\a"\nsteps:\n  a: {shell: echo up > up; read line < gate}\n')
    gate, up = program.gate("gate"), program.gate("up")
    with Terminal(program, "run", "flow.yaml") as terminal:
        up.wait()
        terminal.until("run 1 w\\x1b]0;owned\\x07")
        gate.open()
        assert terminal.end() == 0
    assert dangers(LIVE.sub("", terminal.raw)) == []
