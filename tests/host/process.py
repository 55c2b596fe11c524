"""A process with a host: `python -m tests.host.process DATABASE OUTPUT SLOTS [SECONDS-PAST-WHICH-IT-STOPS]`.

It says `ready`, stops at SIGTERM, kills its steps at the second SIGTERM, and stops by itself in the end.
"""

from __future__ import annotations

import signal
import sys
from functools import partial

from resile.commands.redrive import redrive_events
from resile.engine.host.host import Host
from resile.store.open import open_store

SECONDS_MAX = 300.0


def main() -> None:
    """Drive until a signal comes."""
    database, output, slots, *seconds = sys.argv[1:]
    store = open_store(database)
    log = partial(print, file=sys.stderr, flush=True)
    host = Host(store, output, slots=int(slots), log=log, redrive=redrive_events)
    signals = iter((False, True, True, True))
    signal.signal(signal.SIGTERM, lambda *_: host.stop(kill=next(signals)))
    signal.signal(signal.SIGALRM, lambda *_: host.stop(kill=True))
    signal.setitimer(signal.ITIMER_REAL, float(seconds[0]) if seconds else SECONDS_MAX)
    host.start()
    print("ready", flush=True)
    while not host.wait(0.1):
        pass
    print(host.statistics, flush=True)
    store.close()


if __name__ == "__main__":
    main()
