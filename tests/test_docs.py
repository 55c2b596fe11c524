"""The README and the pages of docs/ are true: their files compile and their commands do what is printed below them.

    ```yaml title="flow.yaml"      a workflow (first line `resile:`): must compile; kept under its title
    ```console                     `$ command`, then the lines it prints; run in order in one folder for each page
    $ resile run flow.yaml  # exit 1

In expected lines `…` stands for any text within the line, and a line of nothing but `…` for any number of lines.
A command without lines below it is only held to its exit code (0 unless `# exit N` says otherwise).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND_SECONDS_MAX = 60

SENTENCE_WORDS_MAX = 35
README_LINES_MAX = 150
GLOSSARY_WORDS_MAX = 12

FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"\s+# exit (\d+)$")


class Block(NamedTuple):
    """A fenced block of a page: its language, its title, its text and the line it begins on."""

    language: str
    title: str
    text: str
    line: int


class Command(NamedTuple):
    """One command of a console block with what must come of it."""

    text: str
    exit_code: int
    output: list[str]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page that the tests know what to do with."""
    source = page.read_text()
    found = []
    for match in FENCE.finditer(source):
        title = re.search(r'title="([^"/]+)"', match[2])
        line = source.count("\n", 0, match.start()) + 1
        found.append(Block(match[1], title[1] if title else "", match[3], line))
    return found


def commands(text: str) -> list[Command]:
    """The commands of a console block, each with the lines that follow it."""
    found: list[Command] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            noted = EXIT.search(line)
            found.append(Command(EXIT.sub("", line[2:]), int(noted[1]) if noted else 0, []))
        else:
            assert found, f"{line!r} stands before the first command"
            found[-1].output.append(line)
    return found


def pattern(lines: list[str]) -> re.Pattern[str]:
    """The expected lines as an expression for the whole output."""
    text = ""
    for line in lines:
        text += (
            r"(?:[^\n]*\n)*" if line.strip() == "…" else re.escape(line.rstrip()).replace("…", r"[^\n]*") + r"[ \t]*\n"
        )
    return re.compile(text)


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command as a reader would type it in `folder`, with a store of its own and stderr where it would appear."""
    bin_folder = str(Path(sys.executable).parent)
    assert shutil.which("resile", path=bin_folder), (
        "resile is not installed beside this interpreter: run `make install`"
    )
    environ = {
        **os.environ,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / ".state"),
    }
    environ.pop("RESILE_DB", None)
    environ.pop("RESILE_OUTPUT_DIR", None)
    return subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )


def workflows() -> list[object]:
    """Every workflow in the pages, as a parameter that is named for its place."""
    return [
        pytest.param(page, block.text, id=f"{page.name}:{block.line}")
        for page in PAGES
        for block in blocks(page)
        if block.language == "yaml" and block.text.startswith("resile:")
    ]


@pytest.mark.parametrize(("page", "text"), workflows())
def test_every_workflow_compiles(page: Path, text: str, tmp_path: Path) -> None:
    """`resile check` accepts each workflow that a page shows, beside the page's other files."""
    for block in blocks(page):
        if block.title:
            (tmp_path / block.title).write_text(block.text)
    (tmp_path / "flow.yaml").write_text(text)
    done = run("resile check flow.yaml", tmp_path)
    assert (done.returncode, done.stdout if done.returncode else "") == (0, "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_does_what_the_page_says(page: Path, tmp_path: Path) -> None:
    """The console blocks of a page, run in order beside its titled files, print what stands below them."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for block in blocks(page):
        if block.title:
            (tmp_path / block.title).write_text(block.text)
        if block.language != "console":
            continue
        for command in commands(block.text):
            done = run(command.text, tmp_path)
            place = f"{page.name}:{block.line}: {command.text}\n{done.stdout}"
            assert done.returncode == command.exit_code, place
            if command.output:
                assert pattern(command.output).fullmatch(done.stdout), place


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    """Each relative link of a page points to a file of the repository."""
    links = re.findall(r"\]\((?![a-z]+:|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_promise_has_its_test() -> None:
    """Each row of a table of promises names tests, and every one of them exists."""
    text = (ROOT / "docs" / "reference" / "durability.md").read_text()
    page = text.partition("## What is promised")[2].partition("\n## ")[0]
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert rows
    for row in rows:
        names = re.findall(r"`([\w/]+\.py)::(\w+)`", row)
        assert names, row
        for file, test in names:
            assert f"def {test}(" in (ROOT / "tests" / file).read_text(), row


def sentences(page: Path) -> list[str]:
    """The sentences of a page's paragraphs and lists; tables, headings and blocks of code are no sentences."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = []
    for part in re.split(r"\n\s*\n|\n(?=- |\d\. |\| |#)", prose):
        if not part.lstrip().startswith(("|", "#")):
            found += re.split(r"(?<=[.!?:])\s+(?=[A-Z`\[*])|; ", " ".join(part.split()))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sentences_are_short(page: Path) -> None:
    """No sentence of a page has more than 35 words; a piece of code counts as one."""
    assert [
        sentence
        for sentence in sentences(page)
        if len(re.sub(r"`[^`]*`", "code", sentence).split()) > SENTENCE_WORDS_MAX
    ] == []


def test_the_first_pages_are_short() -> None:
    """The README has fewer than 150 lines, and the glossary at most twelve words."""
    assert len((ROOT / "README.md").read_text().splitlines()) < README_LINES_MAX
    glossary = (ROOT / "docs" / "start" / "glossary.md").read_text().partition("|---|---|\n")[2]
    assert glossary.count("\n|") < GLOSSARY_WORDS_MAX


def test_the_demo_installs_only_what_running_needs(tmp_path: Path) -> None:
    """`make demo` on a bare machine installs the pinned packages of requirements.txt and no others."""
    plan = subprocess.run(
        ["make", "-n", "demo", f"RUNTIME={tmp_path}/runtime", f"VENV={tmp_path}/venv"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert re.findall(r"requirements[\w-]*\.txt", plan) == ["requirements.txt"]


def test_the_site_lists_every_page() -> None:
    """The navigation of the site has each page of docs/ once, so that `make site` checks the links of all."""
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())
    assert sorted(listed) == [str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]]


def test_expected_output_is_compared_line_by_line() -> None:
    """`…` stands for text within a line, alone on a line for any lines, and everything else is literal."""
    expected = pattern(["run …", "…", "a.b (2 steps)"])
    assert expected.fullmatch("run 7\na.b (2 steps)\n")
    assert expected.fullmatch("run 7\nx\ny\na.b (2 steps)\n")
    assert not expected.fullmatch("run 7\nacb (2 steps)\n")
    assert not expected.fullmatch("run 7\na.b (2 steps)\nmore\n")


def test_console_blocks_are_read_as_commands() -> None:
    """A console block gives its commands in order with their exit codes and expected lines."""
    assert commands("$ one  # exit 1\nout\n$ two\n") == [Command("one", 1, ["out"]), Command("two", 0, [])]
