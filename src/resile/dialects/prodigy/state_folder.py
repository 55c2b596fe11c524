"""The folder `.prodigy`, in which Prodigy and its users keep files."""

from __future__ import annotations

from resile.dialects.formats.nodes import Mapping
from resile.dialects.native.nodes import mapping, word
from resile.dialects.reading.diagnostics import Place

FOLDER = ".prodigy"


def make_folder_step(at: Place) -> Mapping:
    """Make a step that creates the folder, as Prodigy does when it starts."""
    return mapping(at, {"id": word(FOLDER, at), "shell": word(f"mkdir -p {FOLDER}", at)})
