"""`make equal`: compile and run everything with an older version of this repository and with the working tree.

Exits 0 where both are equal, but for what accepted.py lists, and 1 where they are not.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.equal.accepted import ACCEPTED
from tests.equal.compiling import Compiler, Version
from tests.equal.differences import Difference, Table, differences
from tests.equal.files import BUILD, ROOT, File, collected
from tests.equal.running import Found, compared
from tests.equal.sandbox import Box, can_close, stock

LAST_BEFORE = "9e898d6"
"""The last commit before the source tree was rearranged."""
BOXES = "/var/tmp"
DIFFERENCES_SHOWN_MAX = 3


def arguments() -> argparse.Namespace:
    """What the caller asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.equal", description="Compare two versions of Resile.")
    parser.add_argument("--old", metavar="REVISION", default=LAST_BEFORE, help=f"compare with this; {LAST_BEFORE}")
    parser.add_argument("--only", metavar="PATTERN", action="append", help="files whose name matches (repeatable)")
    parser.add_argument("--no-run", action="store_true", help="compile only")
    parser.add_argument("--run-texts", action="store_true", help="run the texts in the tests too, which takes long")
    parser.add_argument("--jobs", metavar="N", type=int, default=2, help="runs at a time: 2")
    parser.add_argument("--sample", metavar="N", type=int, default=0, help="run no more than N files, drawn by lot")
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="another lot: 0")
    return parser.parse_args()


def exported(revision: str) -> Path:
    """The sources of a revision, below build/."""
    tree = BUILD / "old"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        sys.exit(f"equal: {revision}: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    return tree


class Report:
    """Prints what differs and counts everything."""

    def __init__(self) -> None:
        self.table = Table(ACCEPTED)
        self.counts: Counter[str] = Counter()

    def tell(self, file: File, found: list[Difference], kind: str) -> None:
        """Count a comparison, and print what is not accepted of it."""
        left = [each for each in found if not self.table.accepts(file.name, each)]
        self.counts[f"{kind} accepted"] += len(found) - len(left)
        self.counts[f"{kind} {'different' if left else 'equal'}"] += 1
        for each in left[:DIFFERENCES_SHOWN_MAX]:
            print(f"{file.name}: {each}")
        if len(left) > DIFFERENCES_SHOWN_MAX:
            print(f"{file.name}: and {len(left) - DIFFERENCES_SHOWN_MAX} more differences")
        sys.stdout.flush()

    def summary(self) -> str:
        """The counts in lines."""
        count = self.counts
        texts = count["text compiled"] + count["text refused"]
        runs = count["run equal"] + count["run different"]
        return "\n".join(
            (
                f"compiled       {count['file compiled']} files, and {count['file refused']} were refused; "
                f"of {texts} texts {count['text compiled']}",
                f"models         {count['compile equal']} equal, {count['compile different']} different, "
                f"{count['compile accepted']} differences accepted",
                f"runs           {runs}: {count['run equal']} equal "
                f"({count['unstable']} of them but for what differs between two runs of the old version), "
                f"{count['run different']} different, {count['run accepted']} differences accepted",
                f"only compiled  {count['file compiled'] + count['text compiled'] - runs}",
            )
        )


def compile_all(files: list[File], versions: tuple[Version, Version], report: Report) -> dict[File, dict[str, Any]]:
    """Compare what both versions compile; the models of the files that can run."""
    models: dict[File, dict[str, Any]] = {}
    compilers = [Compiler(version, BUILD) for version in versions]
    try:
        for file in files:
            for compiler in compilers:
                compiler.ask(file.path)
            old, new = (compiler.answer() for compiler in compilers)
            report.tell(file, list(differences(old, new)), "compile")
            ok = "check" in old and old["check"]["files"][0]["ok"]
            report.counts[f"{'text' if file.group == 'texts' else 'file'} {'compiled' if ok else 'refused'}"] += 1
            if ok:
                models[file] = old["model"]
    finally:
        for compiler in compilers:
            compiler.close()
    return models


def run_all(models: dict[File, dict[str, Any]], versions: tuple[Version, Version], report: Report, jobs: int) -> None:
    """Compare runs, so many at a time."""
    folder = Path(tempfile.mkdtemp(prefix="resile-equal-", dir=BOXES))
    try:
        programs = stock(folder / "bin")
        is_closed = can_close(folder, programs)
        if not is_closed:
            print("no sandbox on this machine: files of others are compiled only", file=sys.stderr)
        files = [file for file in models if is_closed or file.group != "corpus"]
        boxes: SimpleQueue[Box] = SimpleQueue()
        for number in range(jobs):
            boxes.put(Box(folder / f"box-{number}", programs, is_closed=is_closed))

        def one(file: File) -> Found:
            box = boxes.get()
            try:
                return compared(file, models[file], box, *versions)
            finally:
                boxes.put(box)

        with ThreadPoolExecutor(jobs) as pool:
            for file, found in zip(files, pool.map(one, files), strict=True):
                report.tell(file, found.different, "run")
                report.counts["unstable"] += bool(found.unstable)
                if found.unstable:
                    more = f" and {len(found.unstable) - 1} more" if found.unstable[1:] else ""
                    print(f"{file.name}: unstable, as the old version is by itself: {found.unstable[0]}{more}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Compare; the exit code."""
    asked = arguments()
    versions = (Version("old", exported(asked.old), BUILD), Version("new", ROOT, BUILD))
    for version in versions:
        version.prepare()
    files = [file for file in collected() if not asked.only or any(fnmatchcase(file.name, each) for each in asked.only)]
    report = Report()
    print(f"comparing {len(files)} files with {asked.old}", file=sys.stderr, flush=True)
    models = compile_all(files, versions, report)
    print(f"{len(models)} of them compile", file=sys.stderr, flush=True)
    if not asked.no_run:
        chosen = {file: model for file, model in models.items() if asked.run_texts or file.group != "texts"}
        if asked.sample and asked.sample < len(chosen):
            drawn = set(random.Random(asked.seed).sample(list(chosen), asked.sample))
            chosen = {file: model for file, model in chosen.items() if file in drawn}
        run_all(chosen, versions, report, asked.jobs)
    print(report.summary())
    is_whole = not (asked.only or asked.no_run or asked.sample)
    for row in report.table.unused() if is_whole else ():
        print(f"accepted, but did not occur: {row}")
    return 1 if report.counts["compile different"] or report.counts["run different"] else 0


sys.exit(main())
