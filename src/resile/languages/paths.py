"""Paths of files with values in them: no value leads out of the folder in which it stands.

    out/${item.name}.txt    a value stays in the folder `out`
    ${inputs.name}          and in the step's folder where it comes first
    /data/${a}/${b}         each stays in the folder that the text before it names: `/data`, then `/data/A`
    ${raw:inputs.path}      may lead anywhere

The text that the file itself contains may be absolute and may have `..`. Links that a value selects count with their
targets; only a link at the very end does not, because a written file replaces it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from resile.errors import shorten
from resile.languages.references import ValueRefused

Piece = tuple[str, str | None]
"""A part of a path; with the text of its reference or output if it is a value that must stay in its folder."""


def join_path(folder: str, pieces: Sequence[Piece]) -> str:
    """The path, relative to `folder`; raises ValueRefused if a value leads out of its folder."""
    path = "".join(text for text, _ in pieces)
    start = end = 0
    for text, name in pieces:
        start, end = end, end + len(text)
        if name is None:
            continue
        own = os.path.realpath(os.path.join(folder, os.path.dirname(path[:start])))
        # The text after a value may continue its last part, up to the next slash.
        slash = path.find("/", end)
        reached = os.path.join(folder, path if slash < 0 else path[:slash])
        if slash < 0 and os.path.basename(reached) not in ("", ".", ".."):
            real = os.path.join(os.path.realpath(os.path.dirname(reached)), os.path.basename(reached))
        else:
            real = os.path.realpath(reached)
        if real != own and not real.startswith(own.rstrip("/") + "/"):
            way_out = f"; `${{raw:{name[2:]}` may lead anywhere" if name.startswith("${") else ""
            raise ValueRefused(f"the value of `{name}`, {shorten(text)!r}, leads out of the folder {own}{way_out}")
    return os.path.join(folder, path)
