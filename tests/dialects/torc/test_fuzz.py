"""Whatever is in a Torc file, compiling it gives findings, never an exception, and soon."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from resile.dialects.compile import compile_text
from tests.dialects.test_fuzz import problems

FILES = Path(__file__).parent.parent / "files" / "torc"
LANGUAGES = ("yaml", "json", "json5", "kdl")
MUTANTS = int(os.environ.get("RESILE_FUZZ", "8000")) // len(LANGUAGES)
SECONDS_MAX = 1.0
PIECES = (
    b"{", b"}", b"[", b"]", b"\"", b"'", b"#", b"/-", b"/*", b"//", b"\\", b"\n", b"\t", b": ", b",", b";", b"=", b"(",
    b"\xff",
    b"\0", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"{i:03d}", b"${files.input.", b"1:9", b"[1,2]", b"null", b"#true",
    b"\"\"\"", b"*a", b"&a ", b"!!", b"- ", b"zip", b"(a+)+", b"end", b"0x", b"1e9", b"-1", b"\\u", b"\\ud800",
)  # fmt: skip


def mutant(data: bytes, chance: random.Random) -> bytes:
    """The file with a few bytes cut out, put in, doubled or moved."""
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(data) + 1)
        length = chance.choice((0, 1, 1, 2, 8, 60))
        match chance.randrange(5):
            case 0:
                data = data[:at] + data[at + length :]
            case 1:
                data = data[:at] + chance.choice(PIECES) + data[at + length :]
            case 2:
                data = data[:at] + chance.randbytes(chance.randint(1, 3)) + data[at:]
            case 3:
                data = data[:at] + data[at : at + length] * 2 + data[at + length :]
            case _:
                other = chance.randrange(len(data) + 1)
                data = data[:at] + data[other : other + length] + data[at:]
    return data


@pytest.mark.parametrize("ending", LANGUAGES)
def test_mutated_files(ending: str) -> None:
    """Thousands of broken files in each language: a workflow or errors with words, each within its time."""
    data = (FILES / f"survey.{ending}").read_bytes()
    chance = random.Random(f"torc {ending} {os.environ.get('RESILE_FUZZ_SEED', '0')}")
    wrong: list[tuple[int, list[str]]] = []
    slowest = 0.0
    for number in range(MUTANTS):
        changed = mutant(data, chance)
        begin = time.process_time()
        result = compile_text(changed, file=f"flow.{ending}", dialect="torc")
        slowest = max(slowest, time.process_time() - begin)
        if found := problems(result):
            wrong.append((number, found))
    assert wrong == []
    assert slowest < SECONDS_MAX
