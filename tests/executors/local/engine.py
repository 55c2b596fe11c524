"""An engine that only starts attempts, then waits for a kill: `python -m tests.executors.local.engine FOLDER TEXT...`.

Job N runs the N-th text, two at a time, and `ready` is written once the first two have started.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from resile.executors.contract import Started

from .driver import Driver, sh


def main() -> None:
    """Start, say so, and wait."""
    folder, *texts = sys.argv[1:]
    driver = Driver(Path(folder))
    driver.executor.start([sh(number, text) for number, text in enumerate(texts, 1)])
    driver.until_count(Started, min(2, len(texts)))
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
