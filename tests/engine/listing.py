"""Lists items by the real program and reads the items file that it makes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from resile.engine.actions.map import items_program
from resile.engine.items.listing import items_path, read_items
from resile.languages.references import MISSING
from resile.model.fanout import Source


class Listing:
    """A folder in which items are listed by the real program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.into = items_path(str(folder / "run"), "map")

    def list(
        self,
        content: str | bytes | None = None,
        name: str = "in.json",
        values: dict[str, str] | None = None,
        **keys: Any,
    ) -> tuple[int, str, str]:
        """Exit code, stdout and the last line of stderr, for a file with this content or for the source as given."""
        if content is not None:
            (self.folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
            keys["path"] = name
        known = values or {}
        source = Source(**keys)
        argv, told = items_program(source, self.into, str(self.folder), lambda name: known.get(name, MISSING))
        env = {**os.environb, b"RESILE_STEP": told, b"FROM": b"caller"}
        done = subprocess.run(argv, cwd=self.folder, env=env, capture_output=True, check=False, timeout=60)
        lines = done.stderr.decode().splitlines()
        return done.returncode, done.stdout.decode(), lines[-1] if lines else ""

    def items(self, *words: Any, **keys: Any) -> list[tuple[int, Any]]:
        """(index, value) of each item; the program must have said how many there are."""
        code, said, complaint = self.list(*words, **keys)
        assert (code, complaint) == (0, "")
        found = self.read()
        assert said == f"{len(found)}\n"
        return found

    def values(self, *words: Any, **keys: Any) -> list[Any]:
        """The value of each item."""
        return [value for _, value in self.items(*words, **keys)]

    def refused(self, *words: Any, **keys: Any) -> str:
        """What is said of an input that is wrong; nothing may be left of it."""
        code, said, complaint = self.list(*words, **keys)
        assert (code, said, self.left()) == (2, "", [])
        return complaint

    def read(self) -> list[tuple[int, Any]]:
        """What the items file has."""
        found: list[tuple[int, Any]] = []
        place, ended = 0, False
        while not ended:
            items, place, ended = read_items(self.into, place, 1_000)
            found += [(item.index, item.value) for item in items]
        return found

    def left(self) -> list[str]:
        """The files beside the items file."""
        folder = Path(self.into).parent
        return sorted(os.listdir(folder)) if folder.exists() else []
