"""The memory of a run: its namespaces, and the file that keeps them from one run to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from resile.languages.references import ValueRefused
from resile.model.builtin_actions import MemoryFile
from resile.model.limits import VALUE_BYTES_MAX
from resile.model.workflow import Shell, Step
from tests.core.world import flow
from tests.engine.parts import Parts

FILE = MemoryFile("sub/memory.json")


def remembering(folder: Path, file: MemoryFile | None, *secrets: str) -> Parts:
    """The parts for a workflow with this memory file."""
    return Parts(replace(flow(Step(name="a", action=Shell("true"))), memory_file=file), folder, secrets)


def namespaces(parts: Parts) -> dict[str, Any]:
    """What the first job sees."""
    return parts.performer.values.memory.namespaces(parts.state.jobs[1])


def write(parts: Parts, **changed: Any) -> dict[str, Any]:
    """Let the first job change namespaces; what is recorded of that."""
    return parts.performer.values.memory.write(parts.state.jobs[1], changed)


def test_what_is_written_is_there_for_the_next_run(tmp_path: Path) -> None:
    """In the file, whose folder is made; nothing stays beside it, and a namespace is replaced as a whole."""
    first = remembering(tmp_path, FILE)
    assert namespaces(first) == {}
    assert write(first, x={"a": 1}, y={"b": 2}) == {"x": {"a": 1}, "y": {"b": 2}}
    write(first, x={"c": 3})
    assert namespaces(first) == namespaces(remembering(tmp_path, FILE)) == {"x": {"c": 3}, "y": {"b": 2}}
    assert [file.name for file in (tmp_path / "sub").iterdir()] == ["memory.json"]


def test_a_file_may_be_only_read_or_only_written(tmp_path: Path) -> None:
    """Without a file nothing is kept."""
    write(remembering(tmp_path, FILE), x={"a": 1})
    reader = remembering(tmp_path, replace(FILE, save=False))
    write(reader, x={"a": 2})
    assert namespaces(reader) == {"x": {"a": 2}}
    writer = remembering(tmp_path, replace(FILE, load=False))
    assert namespaces(writer) == {}
    assert namespaces(remembering(tmp_path, FILE)) == {"x": {"a": 1}}
    write(remembering(tmp_path, None), x={"a": 3})
    assert namespaces(remembering(tmp_path, FILE)) == {"x": {"a": 1}}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[]", "it is no JSON of namespaces and keys"),
        (b'{"x": 1}', "it is no JSON of namespaces and keys"),
        (b'{"x": {"a": "\xff"}}', "it is no JSON of namespaces and keys"),
        (b'{"x": {"a": ' + b"[" * 100_000, "it is no JSON of namespaces and keys"),
        (None, "Is a directory"),
    ],
    ids=["list", "no namespace", "no text", "deep", "folder"],
)
def test_a_file_that_is_no_memory_is_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    """The step that needs the memory fails, and says why."""
    path = tmp_path / "sub" / "memory.json"
    path.parent.mkdir()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(ValueRefused) as refused:
        namespaces(remembering(tmp_path, FILE))
    assert str(refused.value) == f"the memory file 'sub/memory.json' can't be read: {reason}"


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """Its folder is a file."""
    (tmp_path / "sub").write_text("")
    with pytest.raises(ValueRefused) as refused:
        write(remembering(tmp_path, replace(FILE, load=False)), x={})
    assert str(refused.value) == "the memory file 'sub/memory.json' can't be written: File exists"


def test_what_can_not_be_kept_is_refused(tmp_path: Path) -> None:
    """A memory has the size of a value at most, and holds text."""
    parts = remembering(tmp_path, None)
    room = VALUE_BYTES_MAX - len('{"x":{"a":""}}')
    assert len(write(parts, x={"a": "y" * room})["x"]["a"]) == room
    with pytest.raises(ValueRefused, match=f"^the memory would have more than {VALUE_BYTES_MAX} bytes$"):
        write(parts, x={"a": "y" * (room + 1)})
    with pytest.raises(ValueRefused, match=r"^a value is no valid text, so it can't be remembered$"):
        write(parts, x={"a": "\udcff"})


def test_no_secret_is_remembered(tmp_path: Path) -> None:
    """Neither in the log nor in the file."""
    parts = remembering(tmp_path, FILE, "hunter2")
    assert write(parts, x={"a": "is hunter2"}) == {"x": {"a": "is ***"}}
    assert b"hunter2" not in (tmp_path / "sub" / "memory.json").read_bytes()
