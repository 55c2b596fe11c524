"""Imports point downwards only, and the command starts without loading what it does not need.

cli  testing
server
api  commands
engine  explain
store  executors
dialects
languages
core
model                                        errors: importable from everywhere
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

SRC = Path(__file__).parent.parent / "src" / "resile"

# Which folders each folder may import, besides itself and `errors`.
ALLOWED: dict[str, set[str]] = {
    "model": set(),
    "core": {"model"},
    "languages": {"model", "core"},
    "dialects": {"model", "languages"},
    "store": {"model", "core"},
    "executors": {"model", "core", "languages"},
    "explain": {"model", "core", "store"},
    "engine": {"model", "core", "languages", "store", "executors"},
    "api": {"model", "core", "languages", "dialects", "store", "executors", "engine", "commands"},
    "commands": {"model", "core", "languages", "dialects", "store", "executors", "explain", "engine"},
    "testing": {"model", "api"},
    "server": {"model", "core", "dialects", "store", "executors", "explain", "engine", "commands"},
    "cli": {"model", "core", "dialects", "store", "executors", "explain", "engine", "commands", "api", "server"},
}

# Each costs a noticeable part of the time in which `resile --help` must be done.
HEAVY = {
    "apsw",
    "asyncio",
    "dataclasses",
    "inspect",
    "json",
    "logging",
    "msgspec",
    "rich",
    "sqlite3",
    "subprocess",
    "tempfile",
    "typing",
    "yaml",
}


@cache
def import_nodes(file: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Every import statement of a file."""
    tree = ast.parse(file.read_text(), str(file))
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import in a file, lazy and type-checking ones too."""
    for node in import_nodes(file):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        else:
            assert node.level == 0, f"{file}:{node.lineno}: a relative import"
            module = node.module or ""
            # `from resile import store` names a folder as much as `import resile.store` does.
            names = [f"resile.{alias.name}" for alias in node.names] if module == "resile" else [module]
            yield from ((node.lineno, name) for name in names)


def module_graph() -> dict[str, set[str]]:
    """Which modules of the package each of its modules imports, late and type-checking imports included."""
    files = {".".join(("resile", *file.relative_to(SRC).with_suffix("").parts)): file for file in SRC.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): file for name, file in files.items()}
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, file in modules.items():
        for node in import_nodes(file):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names} & modules.keys()
            elif node.module in modules:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[name] |= inner & modules.keys() or {node.module}
    return graph


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """Every module that one leads to by imports; itself only where a cycle leads back."""
    found: set[str] = set()
    work = [start]
    while work:
        more = graph[work.pop()] - found
        found |= more
        work += more
    return found


def modules_after(statement: str) -> set[str]:
    """The top-level names of all modules that a fresh interpreter has loaded after a statement."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_every_folder_has_its_place() -> None:
    """Each folder of the package stands in the table of layers."""
    folders = {folder.name for folder in SRC.iterdir() if folder.is_dir() and folder.name != "__pycache__"}
    assert sorted(folders - ALLOWED.keys()) == []


def test_the_table_has_no_way_up() -> None:
    """Following allowed imports never leads back to where one began."""
    order = list(TopologicalSorter(ALLOWED).static_order())
    assert all(order.index(below) < order.index(folder) for folder, allowed in ALLOWED.items() for below in allowed)


def test_imports_point_downwards() -> None:
    """No folder imports another one that it may not know of."""
    upwards = []
    for folder, allowed in ALLOWED.items():
        for file in sorted((SRC / folder).rglob("*.py")):
            for line, module in imports(file):
                top, _, rest = module.partition(".")
                target = rest.partition(".")[0]
                if top == "resile" and target in ALLOWED and target not in allowed | {folder}:
                    upwards.append(f"{file.relative_to(SRC)}:{line}: {folder} imports {target}")
    assert not upwards, "\n" + "\n".join(upwards)


def test_no_modules_import_each_other() -> None:
    """No module imports itself by way of others, not even inside a function or for types only."""
    graph = module_graph()
    led_to = {name: reachable(graph, name) for name in graph}
    cycles = {name: sorted(other for other in led_to[name] if name in led_to[other]) for name in graph}
    wrong = [f"{name}: in a cycle with {', '.join(found)}" for name, found in sorted(cycles.items()) if found]
    assert wrong == []


def test_explain_knows_the_store_by_its_contract() -> None:
    """What explains runs reads any store: it imports the contract and no database."""
    found = {module for file in (SRC / "explain").rglob("*.py") for _, module in imports(file)}
    assert {module for module in found if module.startswith("resile.store")} <= {"resile.store.contract"}


def test_only_executors_know_how_output_is_kept() -> None:
    """Of the local executor other folders import the executor and its start, and none of the files it keeps."""
    local = "resile.executors.local."
    found = {
        f"{file.relative_to(SRC)}: {module}"
        for file in SRC.rglob("*.py")
        for _, module in imports(file)
        if module.startswith(local) and file.relative_to(SRC).parts[0] != "executors"
        if module not in (local + "executor", local + "prestart")
    }
    assert sorted(found) == []


def test_errors_stand_on_nothing() -> None:
    """`errors` imports nothing of the package, because everything imports it."""
    assert [module for _, module in imports(SRC / "errors.py") if module.startswith("resile")] == []


def test_the_package_itself_is_light() -> None:
    """`import resile` loads nothing heavy."""
    assert modules_after("import resile") & HEAVY == set()


def test_the_command_line_is_light() -> None:
    """Loading the command's entry point loads none of the heavy modules; each verb loads what it needs."""
    assert modules_after("import resile.cli.main") & HEAVY == set()


def test_the_core_stands_alone() -> None:
    """Loading the core loads no store, no executor, no front end and no runtime."""
    code = "import sys, resile.core.events, resile.core.actions; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name.split(".")[1] for name in done.stdout.split() if name.startswith("resile.")}
    assert loaded == {"core", "model"}
