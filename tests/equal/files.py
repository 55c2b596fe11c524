"""Which files are compared, and how their runs are held.

group       where from                                              runs
examples    examples/                                               yes, with the programs of this machine
tests       the workflow files below tests/                         yes, with the programs of this machine
docs        the titled blocks of the README and the pages of docs/  yes, with the programs of this machine
texts       every text in the tests that could be a workflow        with --run-texts
corpus      files of others: $RESILE_CORPUS, or ../shared/corpus    in a sandbox only, with harmless programs

The last one is looked for beside the repository, also where this is one of its worktrees.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
BUILD = ROOT / "build" / "equal"
TEXTS = BUILD / "texts"
SUFFIXES = {".yaml", ".yml", ".json", ".json5", ".kdl"}
FENCE = re.compile(r'^```(?:yaml|python)[^\n]*title="([^"/]+)"[^\n]*\n(.*?)^```$', re.MULTILINE | re.DOTALL)
WORKFLOW_LIKE = re.compile(r"""^(?:[\w"'-]+:(?:\s|$)|- |\{)""", re.MULTILINE)
CODE_LIKE = re.compile(r"^(?:import|from|def|with|CREATE|INSERT) ", re.MULTILINE)


class File(NamedTuple):
    """A file to compare: the name it is reported by, where it is, and where it comes from."""

    name: str
    path: Path
    group: str


def collected() -> list[File]:
    """Every file, in the order in which they are compared."""
    shutil.rmtree(TEXTS, ignore_errors=True)
    found = [File(_name(path), path, "examples") for path in _below(ROOT / "examples", SUFFIXES | {".py"})]
    tests = [*_below(ROOT / "tests", SUFFIXES), *_below(ROOT / "tests" / "data", {".py"})]
    found += [File(_name(path), path, "tests") for path in tests]
    found += [*_pages(), *_texts()]
    corpus = corpus_folder()
    if corpus is not None:
        found += [
            File(f"corpus/{path.relative_to(corpus).as_posix()}", path, "corpus") for path in _below(corpus, SUFFIXES)
        ]
    return found


def corpus_folder() -> Path | None:
    """The files of other systems on this machine, if there are any."""
    named = os.environ.get("RESILE_CORPUS")
    if named:
        return Path(named).resolve()
    git = subprocess.run(["git", "rev-parse", "--git-common-dir"], cwd=ROOT, capture_output=True, text=True, check=True)
    for repository in (ROOT, (ROOT / git.stdout.strip()).resolve().parent):
        beside = repository.parent / "shared" / "corpus"
        if beside.is_dir():
            return beside.resolve()
    return None


def _below(folder: Path, suffixes: set[str]) -> list[Path]:
    """The files of these kinds below a folder, in a fixed order."""
    return sorted(path for path in folder.rglob("*") if path.suffix in suffixes and path.is_file())


def _name(path: Path) -> str:
    """A file by its place in the repository."""
    return path.relative_to(ROOT).as_posix()


def _pages() -> Iterator[File]:
    """The files that the documentation shows; those of one page are put side by side, as its commands expect."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, match in enumerate(FENCE.finditer(page.read_text())):
            folder = TEXTS / page.stem
            if (folder / match[1]).exists():
                folder = TEXTS / f"{page.stem}-{number}"
            if Path(match[1]).suffix in SUFFIXES | {".py"}:
                yield _written(folder / match[1], match[2], f"{_name(page)}#{match[1]}", "docs")


def _texts() -> Iterator[File]:
    """Every text in the test suite that could be a workflow, each in its own folder; many are meant to be wrong."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.is_relative_to(Path(__file__).parent):
            continue
        seen: set[str] = set()
        for line, text in _literals(ast.parse(path.read_text())):
            if text not in seen:
                seen.add(text)
                folder = TEXTS / path.relative_to(ROOT).with_suffix("") / f"{line}-{len(seen)}"
                suffix = ".json" if text.lstrip().startswith("{") else ".yaml"
                yield _written(folder / f"flow{suffix}", text, f"{_name(path)}:{line}", "texts")


def _literals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines and texts of several lines that look like a workflow and not like a program; no docstrings."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    told |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            text = node.value
            if "\n" in text.strip() and WORKFLOW_LIKE.search(text) and not CODE_LIKE.search(text):
                yield node.lineno, text


def _written(path: Path, text: str, name: str, group: str) -> File:
    """A text as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return File(name, path, group)
