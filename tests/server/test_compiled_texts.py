"""Texts that are submitted again: compiled once where they stand alone, and each run has its own folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from resile.commands.load import CompileOptions
from resile.commands.service import compiled_texts
from resile.commands.service.submit import SubmitOptions, TextCall, source_of, submit_text
from resile.model import codec
from resile.store.open import open_store

PLAIN = 'resile: 1\nname: plain\nsteps: {a: {shell: "true", retry: 2}}\n'


def compile_in(folder: str, text: str) -> tuple[bytes, bool]:
    """The definition of a text for a run with this folder; and is its workflow kept?"""
    loaded = compiled_texts.compile_alone(text, "flow.yaml", CompileOptions(), folder, source_of(text, {}))
    assert codec.encode(loaded.workflow) == loaded.definition
    assert loaded.workflow.folder == folder
    return loaded.definition, any(key[0] == loaded.source for key in compiled_texts._kept)


def test_a_kept_workflow_differs_in_its_folder_alone() -> None:
    """The second compilation gives what a first one would have given."""
    first, is_kept = compile_in("/there/aaaa", PLAIN)
    second, _ = compile_in("/there/bb", PLAIN)
    assert is_kept
    assert second == first.replace(b"/there/aaaa", b"/there/bb")


@pytest.mark.parametrize(
    "text",
    [
        'resile: 1\nsteps: {m: {map: {input: items.jsonl, steps: [{shell: "true"}]}}}\n',
        'resile: 1\nsteps: {a: {shell: "cat /there/aaaa/x"}}\n',
    ],
    ids=["a map, for which files are looked at", "one that names the folder"],
)
def test_what_depends_on_more_than_its_text_is_compiled_anew(text: str) -> None:
    """It is not kept."""
    _, is_kept = compile_in("/there/aaaa", text)
    assert not is_kept


def test_the_last_texts_are_kept() -> None:
    """Many texts do not fill the memory."""
    for number in range(compiled_texts.KEPT_MAX + 10):
        compile_in("/there/aaaa", PLAIN.replace("plain", f"plain{number}"))
    assert len(compiled_texts._kept) == compiled_texts.KEPT_MAX


def test_runs_of_one_text_have_folders_of_their_own(tmp_path: Path) -> None:
    """Each of two runs works in its own folder, and its definition names that one."""
    store = open_store(str(tmp_path / "resile.db"))
    call = TextCall(text=PLAIN, output=str(tmp_path / "output"))
    runs = [submit_text(store, call, SubmitOptions(by="me")).run for _ in range(2)]
    rows = [store.run(run) for run in runs]
    folders = [codec.decode(store.definition(row.definition)).folder for row in rows if row is not None]
    assert [row.directory for row in rows if row is not None] == folders
    assert len({*folders}) == 2
    assert all(os.path.isdir(folder) for folder in folders)
    store.close()
