"""Which tests notice a change of a file of the package."""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

PACKAGE = "src/resile/"
# The folders that are covered and their suites, the quickest first. The first row that fits a file counts.
SUITES: dict[str, tuple[str, ...]] = {
    "core": ("tests/core", "tests/explain", "tests/runs/ladder", "tests/runs/fanout"),
    "store/postgres": ("tests/store", "tests/runs/durability/test_postgres.py"),
    "store": ("tests/store", "tests/cli/test_database.py", "tests/engine"),
    "engine/evaluation": (
        "tests/engine",
        "tests/runs/values",
        "tests/runs/fanout",
        "tests/dialects/visor",
        "tests/dialects/noetl",
        "tests/api",
        "tests/cli",
    ),
    "engine/host": ("tests/host", "tests/worker", "tests/server/test_runs.py", "tests/server/test_acts.py"),
    "engine/monitoring": ("tests/resources", "tests/engine", "tests/executors/test_outcome.py"),
    "engine/fingerprints": ("tests/engine", "tests/runs/changed", "tests/dialects/torc/test_changed.py"),
    "engine": (
        "tests/engine",
        "tests/runs/values",
        "tests/runs/ladder",
        "tests/runs/fanout",
        "tests/dialects/prodigy/test_runs.py",
        "tests/api",
        "tests/cli",
    ),
    "executors/local": ("tests/executors", "tests/host", "tests/runs/ladder", "tests/engine"),
}
# Looks at the records of every folder.
RECORDS = "tests/test_records.py"


def folder_of(path: str) -> str:
    """The row of the table for a file; empty where no row covers it."""
    return next((folder for folder in SUITES if path.startswith(f"{PACKAGE}{folder}/")), "")


def tests_for(root: Path, path: str, suites: Sequence[str]) -> list[str]:
    """The test files of some suites, in the order in which they most likely notice a change of a file.

    The files of the same name come first, then those that import it. The others follow suite by suite: those of its
    folder, then those that import a module that imports it, and so on.
    """
    distances = _distances(_module(path), _users(root))

    def order(numbered: tuple[int, Path]) -> tuple[bool, bool, int, bool, int]:
        suite, file = numbered
        distance = distances.get(_module(file.relative_to(root).as_posix()), len(distances))
        same_name, same_folder = file.stem == f"test_{Path(path).stem}", file.parent.name == Path(path).parent.name
        return not same_name, not same_name and distance > 1, suite, not same_folder, distance

    numbered = [(number, file) for number, suite in enumerate(suites) for file in _files(root / suite)]
    return [*(file.relative_to(root).as_posix() for _, file in sorted(numbered, key=order)), RECORDS]


@cache
def _users(root: Path) -> dict[str, set[str]]:
    """For each module, those that import it."""
    users: dict[str, set[str]] = defaultdict(set)
    for file in (file for top in ("src", "tests") for file in (root / top).rglob("*.py")):
        for imported in _imports(ast.parse(file.read_text())):
            users[imported].add(_module(file.relative_to(root).as_posix()))
    return users


def _distances(module: str, users: dict[str, set[str]]) -> dict[str, int]:
    """How many imports away each module is that uses a module."""
    found = {module: 0}
    waiting = deque([module])
    while waiting:
        name = waiting.popleft()
        for user in users.get(name, ()):
            if user not in found:
                found[user] = found[name] + 1
                waiting.append(user)
    return found


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _module(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").replace("/", ".")


def _files(suite: Path) -> list[Path]:
    return sorted(suite.rglob("test_*.py")) if suite.is_dir() else [suite]
