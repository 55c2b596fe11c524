"""`make torture MINUTES=30 SEED=1`: play rounds until the time is over; a failed one says how to play it again."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.torture.places import can_mount
from tests.torture.rounds import play


def arguments() -> argparse.Namespace:
    """What the caller asked for."""
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to go on")
    parser.add_argument("--seed", type=int, default=1, help="which rounds")
    parser.add_argument("--round", type=int, default=0, help="play only this round")
    return parser.parse_args()


def main() -> int:
    """Play rounds; 1 if one of them failed, and its folder is kept."""
    options = arguments()
    end = time.monotonic() + options.minutes * 60
    if not can_mount():
        print("no loop devices here (they need root): no power cuts and no full disks")
    happened: Counter[str] = Counter()
    rounds = failed = 0
    while options.round or time.monotonic() < end:
        rounds += 1
        number = options.round or rounds
        folder = Path(tempfile.mkdtemp(prefix="resile-torture-"))
        events, faults = play(f"{options.seed}/{number}", folder)
        happened.update(event.partition(": ")[2] for event in events)
        if faults:
            failed += 1
            print(f"round {number} failed: make torture SEED={options.seed} ROUND={number}; it is kept in {folder}")
            print("\n".join(f"  {line}" for line in [*events, *faults]), flush=True)
        else:
            shutil.rmtree(folder)
        if options.round:
            break
    told = ", ".join(f"{name} {times}" for name, times in sorted(happened.items()))
    print(f"{rounds} rounds, {failed} failed; {told}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
