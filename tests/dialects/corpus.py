"""How many files of each system compile: `python -m tests.dialects.corpus [FOLDER]`.

FOLDER/<dialect>/<file>     $RESILE_CORPUS, or our own examples where that is not set

compiled   it became a workflow
refused    it did not, and every error says where and why
wrong      a traceback, a file taken for another system's, an error without a place, or more than a second of work
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from msgspec import Struct

from resile.dialects.compile import Compiled, compile_file
from resile.dialects.detect import NAMES

OURS = Path(__file__).parent / "files"
SECONDS_MAX = 1.0


class Score(Struct):
    """What came of the files of one system: their names, and of the wrong ones the reason."""

    compiled: list[str] = []
    refused: list[str] = []
    wrong: list[str] = []


def folder() -> Path | None:
    """The corpus on this machine, if it is named."""
    named = os.environ.get("RESILE_CORPUS")
    return Path(named) if named else None


def score(files: Path, dialect: str) -> Score:
    """Compile every file of one system."""
    found = Score()
    for file in sorted((files / dialect).iterdir()):
        began = time.process_time()
        try:
            result = compile_file(file)
        except Exception as error:
            found.wrong.append(f"{file.name}: {type(error).__name__}: {error}")
            continue
        seconds = time.process_time() - began
        reason = _wrong(result, dialect) or (f"{seconds:.1f} s" if seconds > SECONDS_MAX else "")
        if reason:
            found.wrong.append(f"{file.name}: {reason}")
        else:
            (found.refused if result.workflow is None else found.compiled).append(file.name)
    return found


def _wrong(result: Compiled, dialect: str) -> str:
    """Why a result can't be right, or an empty text."""
    if result.dialect not in ("", dialect):
        return f"taken for {result.dialect}: {result.why}"
    errors = [finding for finding in result.diagnostics if finding.severity == "error"]
    if result.workflow is None and not errors:
        return "refused without a reason"
    for finding in errors:
        if finding.code == "ambiguous" or not finding.line:
            return finding.render()
    return ""


def shown(scores: dict[str, Score]) -> str:
    """The scores in lines, the reasons of what is wrong below."""
    lines = [f"{'':10}{'compiled':>10}{'refused':>10}{'wrong':>10}"]
    for dialect, found in scores.items():
        counts = (len(found.compiled), len(found.refused), len(found.wrong))
        lines.append(f"{dialect:10}" + "".join(f"{count:>10}" for count in counts))
        lines += [f"    wrong: {reason}" for reason in found.wrong]
    return "\n".join(lines)


def scores(files: Path) -> dict[str, Score]:
    """The score of every system that has a folder."""
    return {dialect: score(files, dialect) for dialect in NAMES if (files / dialect).is_dir()}


if __name__ == "__main__":
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else folder() or OURS
    print(f"{given}:")
    print(shown(scores(given)))
