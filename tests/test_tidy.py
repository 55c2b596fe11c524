"""The house style, as tests: what a reviewer would otherwise have to look for in every change.

Each test collects every offence as `file:line: what`, so that one run shows them all.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "resile"
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
FOLDER_FILES_MAX = 15
OWN_IMPORTS_MAX = 25
MODULE_DOCSTRING_WORDS_MIN = 5
# A private function as short as this may let its name say what it does.
SELF_EXPLANATORY_LINES_MAX = 3
FOLDERS_OF_OTHERS = {
    ".git",
    ".venv",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    ".pytest_cache",
    "__pycache__",
    "build",
}

# A participle as a function's whole name says neither what comes in nor what comes out. Regular ones end in -ed.
PARTICIPLES = re.compile(
    r"(told|kept|made|said|shown|held|given|taken|left|met|found|known|heard|spoken|written|seen|gone|begun|done|lost"
    r"|drawn|built|bound|chosen|hidden|laid|meant|sent|spent|apart|again|beside|besides|within|around|inside|outside"
    r"|later|early|anyway|back|[a-z]+ed)"
)
VERBS_IN_ED = {"need", "feed", "embed", "seed", "proceed", "succeed", "exceed", "speed"}
# Words of an earlier vocabulary; each has a plain one by now (docs and code say `RuleTrace`, `has_failed_need` …).
REPLACED_WORDS = {
    "Drafted", "Family", "Finished", "Hand", "Made", "Passed", "PassedOver", "Stranger", "Taken", "Within",
    "announced", "excused", "hope", "hopeful", "informed", "mourn", "needles", "stir", "tainted", "tales",
}  # fmt: skip
# In prose a component has a name; messages for people may use these words.
VAGUE_WORDS = re.compile(r"\b(whoever|nobody|somebody|(is|are|was|were) told|told is)\b", re.IGNORECASE)

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b|NotImplementedError|(?i:not (yet )?implemented|placeholder|\bfor now\b)")
MACHINE_PATH = re.compile(r"(?<![\w.>-])/(work|root|farm)/")
LOCK_FILES = {"uv.lock", "poetry.lock", "Pipfile.lock", "package-lock.json"}
ADDRESS = re.compile(r"\w+://|--(index|extra-index|find-links|trusted-host)")

# What the core may import of the world outside: nothing that reads a clock, a file, a random source or the system.
CORE_IMPORTS = {
    "__future__",
    "bisect",
    "collections",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "math",
    "msgspec",
    "operator",
    "re",
    "struct",
    "resile",
    "typing",
    "zlib",
    "json",
}
# `hash` and `id` differ from one process to the next, so a fold that used them would too.
CORE_CALLS_REFUSED = {"open", "print", "input", "exec", "eval", "compile", "hash", "id", "__import__"}
DIALECT_NAMES = re.compile(r"prodigy|visor|torc|noetl", re.IGNORECASE)

# Fields of the model that nothing reads yet, each with the reason it is there. A field that comes to be read must
# leave this list, so it can only shrink. Fields are told apart by name only: one that shares its name with any
# attribute that is read counts as read.
UNREAD_FIELDS: dict[str, str] = {}


@cache
def parse(file: Path) -> ast.Module:
    """The syntax tree of a file, parsed once for all tests."""
    return ast.parse(file.read_text(), str(file))


def sources(*folders: str) -> list[Path]:
    """The Python files below these folders of the package; all of them where none is named."""
    return sorted(file for folder in folders or (".",) for file in (SRC / folder).rglob("*.py"))


def suite() -> list[Path]:
    """The Python files of the test suite."""
    return sorted((ROOT / "tests").rglob("*.py"))


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file of the repository that is ours, with what it says."""
    for file in sorted(ROOT.rglob("*")):
        parts = file.relative_to(ROOT).parts
        if (
            FOLDERS_OF_OTHERS.isdisjoint(parts)
            and not any(part.endswith(".egg-info") for part in parts)
            and file.is_file()
        ):
            yield file, file.read_text(errors="replace")


def where(file: Path, line: int = 0) -> str:
    """`file:line` as an editor understands it."""
    path = file.relative_to(ROOT).as_posix()
    return f"{path}:{line}" if line else path


def expect_none(offences: list[str]) -> None:
    """Fail with every offence on a line of its own."""
    assert not offences, "\n" + "\n".join(offences)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method in a tree, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def bare_texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of every string that is a statement: docstrings, and the texts below constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


@cache
def contract_methods() -> set[str]:
    """The methods of every Protocol in a module that is called `contract`, or whose docstring says that it is one."""
    classes = [
        node
        for file in sources()
        if file.name == "contract.py" or (ast.get_docstring(parse(file)) or "").startswith("The contract of")
        for node in parse(file).body
        if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases)
    ]
    return {node.name for found in classes for node in functions(found)}


def documented(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Classes, functions and methods that need a docstring.

    Dunder methods, functions inside functions and short private functions need none. Neither do methods that a
    contract documents, in a class whose docstring refers to it.
    """
    is_explained = isinstance(tree, ast.ClassDef) and "contract" in (ast.get_docstring(tree) or "")
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_short = (node.end_lineno or 0) - node.body[0].lineno < SELF_EXPLANATORY_LINES_MAX
            is_plain = (node.name.startswith("_") and is_short) or (is_explained and node.name in contract_methods())
            if not node.name.startswith("__") and not is_plain:
                yield node
        else:
            if isinstance(node, ast.ClassDef):
                yield node
            yield from documented(node)


def cases(file: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The test functions of a file."""
    return (node for node in functions(parse(file)) if node.name.startswith("test_"))


def asserts(node: ast.AST) -> bool:
    """Whether a test says what must hold: `assert`, `pytest.raises`, or a helper that is named for asserting."""
    for part in ast.walk(node):
        if isinstance(part, ast.Assert):
            return True
        if isinstance(part, ast.Call):
            name = ast.unparse(part.func).rpartition(".")[2]
            if name == "raises" or name.startswith(("assert_", "check_", "expect_")):
                return True
    return False


def names_read(folders: list[str]) -> set[str]:
    """Every attribute that these folders read, by dot or by a pattern of `match`."""
    names: set[str] = set()
    for file in sources(*folders):
        for node in ast.walk(parse(file)):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                names.add(node.attr)
            elif isinstance(node, ast.MatchClass):
                names.update(node.kwd_attrs)
    return names


def model_fields() -> Iterator[tuple[str, str]]:
    """(class, field) of every struct of the model."""
    for file in sources("model"):
        for node in parse(file).body:
            if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Struct" for base in node.bases):
                for part in node.body:
                    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                        yield node.name, part.target.id


def test_no_file_is_too_long() -> None:
    """No Python file of the repository has more than 500 lines."""
    lengths = [(where(file), text.count("\n")) for file, text in texts() if file.suffix == ".py"]
    expect_none([f"{file}: {lines} lines" for file, lines in lengths if lines > FILE_LINES_MAX])


def test_no_function_is_too_long() -> None:
    """No function of the package has more than 60 lines."""
    long = [
        f"{where(file, node.lineno)}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for file in sources()
        for node in functions(parse(file))
        if node.end_lineno is not None and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    expect_none(long)


def test_no_folder_is_too_full() -> None:
    """No folder of the package has more than 15 files, of whatever kind."""
    counts: dict[Path, int] = {}
    for file, _ in texts():
        if file.is_relative_to(SRC):
            counts[file.parent] = counts.get(file.parent, 0) + 1
    expect_none([f"{where(folder)}: {count} files" for folder, count in counts.items() if count > FOLDER_FILES_MAX])


def test_no_module_knows_too_many_others() -> None:
    """No module imports more than 25 modules of the package."""
    offences = []
    for file in sources():
        imports = [node for node in ast.walk(parse(file)) if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
        names |= {"." * node.level + (node.module or "") for node in imports if isinstance(node, ast.ImportFrom)}
        modules = {name for name in names if name.startswith((".", "resile."))}
        if len(modules) > OWN_IMPORTS_MAX:
            offences.append(f"{where(file)}: {len(modules)} modules")
    expect_none(offences)


def test_functions_are_verbs_or_nouns() -> None:
    """No function is named by a bare participle or adverb; a property may be."""
    offences = []
    for file in sources():
        for node in functions(parse(file)):
            name = node.name.strip("_")
            is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
            if not is_property and name not in VERBS_IN_ED and PARTICIPLES.fullmatch(name):
                offences.append(f"{where(file, node.lineno)}: {node.name}")
    expect_none(offences)


def test_replaced_words_stay_away() -> None:
    """No name in the package is a word that was replaced by a plainer one."""
    offences = []
    for file in sources():
        for node in ast.walk(parse(file)):
            name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", None)
            if isinstance(name, str) and name.lstrip("_") in REPLACED_WORDS:
                offences.append(f"{where(file, getattr(node, 'lineno', 0))}: {name}")
    expect_none(offences)


def test_prose_names_the_component() -> None:
    """Docstrings, comments and pages never say `nobody`, `whoever` or `is told` for a component that has a name."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    prose = [
        (page, number, line)
        for page in pages
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if "| refused |" not in line  # quotes the message of the refusal
    ]
    for file in sources():
        with tokenize.open(file) as stream:
            tokens = list(tokenize.generate_tokens(stream.readline))
        prose += [(file, token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
        prose += [(file, line, text) for line, text in bare_texts(parse(file))]
    expect_none([f"{where(file, line)}: {text}" for file, line, text in prose if VAGUE_WORDS.search(text)])


def test_nothing_says_it_is_unfinished() -> None:
    """No source file holds a note about work that is left to do."""
    found = [
        f"{where(file, number)}: {line.strip()}"
        for file in sources()
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    expect_none(found)


def test_everything_is_documented() -> None:
    """Every module, class and function of the package has a docstring, and a module's says something."""
    bare = [
        f"{where(file, getattr(node, 'lineno', 1))}: {getattr(node, 'name', 'the module')}"
        for file in sources()
        for node in (parse(file), *documented(parse(file)))
        if len((ast.get_docstring(node) or "").split()) < (MODULE_DOCSTRING_WORDS_MIN if node is parse(file) else 1)
    ]
    expect_none(bare)


def test_each_test_says_in_one_sentence_what_holds() -> None:
    """Each test function has a docstring of exactly one sentence."""
    wrong = []
    for file in suite():
        for node in cases(file):
            text = " ".join((ast.get_docstring(node) or "").split())
            if not text.endswith(".") or re.search(r"[.!?] [A-Z]", text):
                wrong.append(f"{where(file, node.lineno)}: {node.name}: {text!r}")
    expect_none(wrong)


def test_each_test_asserts_something() -> None:
    """A test that can't fail is no test."""
    idle = [f"{where(file, node.lineno)}: {node.name}" for file in suite() for node in cases(file) if not asserts(node)]
    expect_none(idle)


def test_no_test_sleeps() -> None:
    """Tests wait for what they wait for, with a deadline; they never sleep."""
    sleepers = [
        where(file, node.lineno)
        for file in suite()
        for node in ast.walk(parse(file))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "sleep"
    ]
    expect_none(sleepers)


def test_no_test_mocks() -> None:
    """Tests use the real parts: nothing imports a mocking library."""
    mocks = [
        where(file, node.lineno)
        for file in suite()
        for node in ast.walk(parse(file))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and re.search(r"\b(mock|unittest|pytest_mock)\b", ast.unparse(node))
    ]
    expect_none(mocks)


def test_no_path_of_one_machine() -> None:
    """No file of the repository names a folder that only exists where it was written."""
    found = [
        where(file, number)
        for file, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    expect_none(found)


def test_requirements_are_pinned_by_hash_and_by_nothing_else() -> None:
    """There is no lock file with addresses, and every requirement has a version, hashes and no address."""
    assert [where(file) for file, _ in texts() if file.name in LOCK_FILES] == []
    for name in ("requirements.txt", "requirements-dev.txt", "requirements-mutate.txt"):
        text = (ROOT / name).read_text()
        assert ADDRESS.search(text) is None, name
        pins = text.replace("\\\n", " ").splitlines()
        assert [pin for pin in pins if not re.match(r"[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", pin)] == [], name


def test_the_core_is_pure() -> None:
    """The core imports nothing that could give it a clock, the disk, randomness or the system."""
    offences = []
    for file in sources("core"):
        for node in ast.walk(parse(file)):
            match node:
                case ast.Import(names=names):
                    wrong = [alias.name for alias in names if alias.name.split(".")[0] not in CORE_IMPORTS]
                case ast.ImportFrom(module=str(module)):
                    wrong = [] if module.split(".")[0] in CORE_IMPORTS else [module]
                case ast.Call(func=ast.Name(id=name)):
                    wrong = [name] if name in CORE_CALLS_REFUSED else []
                case _:
                    continue
            offences += [f"{where(file, node.lineno)}: {name}" for name in wrong]
    expect_none(offences)


def test_one_function_changes_the_status_of_a_job() -> None:
    """In the core only `set_status` assigns a `status`, so no transition escapes the table."""
    assigned = [
        where(file, node.lineno)
        for file in sources("core")
        if file.name != "transitions.py"
        for node in ast.walk(parse(file))
        if isinstance(node, ast.Attribute) and node.attr == "status" and isinstance(node.ctx, ast.Store)
    ]
    expect_none(assigned)


def test_the_core_knows_no_dialect() -> None:
    """The core names no front end and never asks which one a workflow came from."""
    named = [
        f"{where(file, number)}: {line.strip()}"
        for file in sources("core")
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if DIALECT_NAMES.search(line)
    ]
    expect_none(named)
    assert "dialect" not in names_read(["core"])


def test_every_model_field_is_read() -> None:
    """Beyond the model and the front ends something reads each model field, except those listed with a reason."""
    text_only = ("model", "dialects")
    folders = [folder.name for folder in SRC.iterdir() if folder.is_dir() and folder.name not in text_only]
    read = names_read(folders)
    unread = {f"{owner}.{field}" for owner, field in model_fields() if field not in read}
    expect_none([f"{field}: nothing reads it" for field in sorted(unread - UNREAD_FIELDS.keys())])
    expect_none([f"{field}: read, or gone; take it off the list" for field in sorted(UNREAD_FIELDS.keys() - unread)])


def test_every_event_has_a_handler() -> None:
    """The door's table has exactly the event types of the closed union."""
    from resile.core.events import Event
    from resile.core.react import HANDLERS

    assert set(HANDLERS) == set(get_args(Event))


def test_every_order_and_report_is_handled() -> None:
    """The runtime names each order that the core can give and each report that an executor can make."""
    from resile.core.actions import Order
    from resile.executors.contract import Report

    named = {
        getattr(node, "id", "") or getattr(node, "attr", "")
        for file in sources("engine")
        for node in ast.walk(parse(file))
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    expected = {kind.__name__ for kind in (*get_args(Order), *get_args(Report))}
    expect_none(sorted(expected - named))
