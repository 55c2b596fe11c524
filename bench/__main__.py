"""`python -m bench`: run the cases, print the table, write the JSON.

Exits 0 when everything could be measured, also where a bound is marked OVER (a busy machine is not a defect),
and 1 when a tool is missing or a measured command failed. Bounds are for full sizes: with `--quick` none is judged.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from bench.cases import CASES as FIRST_CASES
from bench.cases import Bench, Case, Figure
from bench.claims import claims
from bench.crowds import crowd
from bench.databases import postgres
from bench.fingerprints import fingerprints
from bench.items import items, many_items
from bench.measure import CommandFailed
from bench.monitoring import monitoring
from bench.parsl_steps import through_parsl
from bench.report import document, filesystem, table
from bench.servers import many_runs, parked, requests, start
from bench.workers import workers

CASES: dict[str, Case] = {
    **FIRST_CASES,
    "items": items,
    "many-items": many_items,
    "fingerprints": fingerprints,
    "postgres": postgres,
    "claims": claims,
    "server-runs": many_runs,
    "server-parked": parked,
    "server-requests": requests,
    "server-start": start,
    "server-crowd": crowd,
    "monitoring": monitoring,
    "workers": workers,
    "parsl": through_parsl,
}
TOOLS = ("ninja", "make", "xargs")
DISK = "/var/tmp"


def arguments() -> argparse.Namespace:
    """What the caller asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Resile against its floors.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer rounds, no bounds")
    parser.add_argument("--only", metavar="NAME", action="append", choices=list(CASES), help="this case (repeatable)")
    parser.add_argument("--json", metavar="FILE", type=Path, default=Path("bench.json"), help="default: bench.json")
    parser.add_argument("--dir", metavar="FOLDER", default=DISK, help=f"where runs are kept meanwhile: {DISK}")
    return parser.parse_args()


def prepare(folder: Path, quick: bool) -> Bench:
    """The sizes of this run, once every tool is known to be there."""
    resile = shutil.which("resile", path=str(Path(sys.executable).parent))
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if resile is None:
        raise CommandFailed("resile is not installed beside this interpreter: run `make install`")
    if missing:
        raise CommandFailed(
            f"not installed: {', '.join(missing)} (on Debian: apt-get install ninja-build make findutils)"
        )
    if quick:
        return Bench(folder, resile, rounds=1, startup_rounds=5, wide=1_000, scale=(1_000, 10_000))
    return Bench(folder, resile, rounds=5, startup_rounds=30, wide=5_000, scale=(1_000, 10_000, 100_000))


def main() -> int:
    """Run the chosen cases; the exit code."""
    asked = arguments()
    folder = Path(tempfile.mkdtemp(prefix="resile-bench-", dir=asked.dir))
    figures: list[Figure] = []
    try:
        bench = prepare(folder, asked.quick)
        if filesystem(folder) == "tmpfs":
            print(
                f"warning: {folder} is a tmpfs, flushing to it costs nothing; choose a disk with --dir", file=sys.stderr
            )
        for name in asked.only or CASES:
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            found = CASES[name](bench)
            figures += [figure._replace(bound=0.0) for figure in found] if asked.quick else found
        asked.json.write_text(document(figures, folder, asked.quick))
    except CommandFailed as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(figures))
    return 0


sys.exit(main())
