"""Whatever is in a Prodigy file, compiling it gives findings, never an exception, and soon.

2,000 mutated files in the fast suite; `make fuzz N=10000` tries more, from other seeds each time it is told another.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import msgspec

from resile.dialects.compile import compile_text
from resile.dialects.detect import tables
from resile.dialects.formats.nodes import plain
from resile.dialects.formats.yaml import parse
from resile.dialects.reading.diagnostics import Diagnostics
from tests.dialects.test_fuzz import problems

FILES = [file.read_bytes() for file in sorted((Path(__file__).parent.parent / "files" / "prodigy").glob("*.yml"))]
WORDS = sorted({key for table in tables("prodigy") for key in table.keys})
PIECES = [b"\t", b"&a ", b"*a", b"<<: ", b"{", b"]", b"'", b"${", b": ", b"!!", b"- ", b"\n", b"null", b"[]", b"{}",
          b"3", b"${item.x:-y}", b"true", b"''", b"\xff", b"\0", b"\xe2\x80\xa8"]  # fmt: skip
TREES = [plain(root) for data in FILES if (root := parse(data, Diagnostics("f"))) is not None]
VALUES: list[Any] = [None, True, False, 0, 3, -1, 1.5, "", "a", "$ARG", "${item.x:-y}", "/x", [], {}, [{"shell": "a"}]]
COUNT = int(os.environ.get("RESILE_FUZZ", "2000"))
SECONDS_MAX = 1.0


def mutated(chance: random.Random) -> bytes:
    """One of our files with a few changes: bytes cut out, put in, words and lines exchanged."""
    data = chance.choice(FILES)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0:
                data = data[:at] + data[at + chance.randint(1, 9) :]
            case 1:
                data = data[:at] + chance.choice(PIECES) + data[at:]
            case 2:
                data = data.replace(chance.choice(WORDS).encode(), chance.choice(WORDS).encode(), 1)
            case 3:
                lines = data.split(b"\n")
                lines.insert(chance.randrange(len(lines)), lines[chance.randrange(len(lines))])
                data = b"\n".join(lines)
            case _:
                other = chance.choice(FILES)
                start = chance.randrange(len(other) + 1)
                data = data[:at] + other[start : start + chance.randint(1, 200)] + data[at:]
    return data


def copied(data: Any) -> Any:
    """The same data, of which no part is shared."""
    return msgspec.json.decode(msgspec.json.encode(data))


def parts(data: Any) -> list[Any]:
    """Every list and mapping in some data that has something in it."""
    found, work = [], [data]
    while work:
        part = work.pop()
        if isinstance(part, dict | list) and part:
            found.append(part)
            work += part.values() if isinstance(part, dict) else part
    return found


def rearranged(chance: random.Random) -> bytes:
    """One of our files with a few values exchanged for others, and keys for other words."""
    data = copied(chance.choice(TREES))
    for _ in range(chance.randint(1, 4)):
        inside = parts(data)
        if not inside:
            break
        part = chance.choice(inside)
        value = chance.choice([*VALUES, chance.choice(parts(chance.choice(TREES)) or VALUES)])
        key = chance.choice(list(part)) if isinstance(part, dict) else chance.randrange(len(part))
        if isinstance(part, dict) and chance.random() < 0.5:
            part[chance.choice(WORDS)] = copied(part[key] if chance.random() < 0.5 else value)
        else:
            part[key] = copied(value)
    return msgspec.json.encode(data)


def test_mutated_files_give_findings() -> None:
    """Each mutated file is a workflow or has an error with words; none takes more than a second."""
    seed = int(os.environ.get("RESILE_FUZZ_SEED", "0"))
    for number in range(COUNT):
        chance = random.Random(f"{seed}/{number}")
        data = mutated(chance) if number % 3 == 0 else rearranged(chance)
        began = time.monotonic()
        try:
            result = compile_text(data, file="flow.yml", dialect="prodigy" if number % 2 else "")
        except Exception as error:
            raise AssertionError(f"file {number} of seed {seed}: {error!r}\n{data!r}") from error
        assert problems(result) == [], (number, data)
        assert time.monotonic() - began < SECONDS_MAX, (number, data)
