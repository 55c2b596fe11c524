"""`make shellfuzz`: everything, with a line for each shell and each offence."""

from __future__ import annotations

import sys
import time

from tests.languages.shell.fuzz.check import CONTEXTS, offences
from tests.languages.shell.fuzz.contexts import SHELLS
from tests.languages.shell.fuzz.payloads import PAYLOADS
from tests.languages.shell.fuzz.run import installed


def main() -> int:
    """Run all contexts on all shells; 1 if one of them is wrong."""
    print(f"{len(CONTEXTS)} contexts x {len(PAYLOADS)} payloads")
    found = 0
    for shell in SHELLS:
        if not installed(shell):
            print(f"{shell}: not installed")
            continue
        started = time.monotonic()
        count, offending = offences(shell)
        print(f"{shell}: {count} commands, {len(offending)} offences, {time.monotonic() - started:.0f} s", flush=True)
        print("".join(f"  {line}\n" for line in offending), end="")
        found += len(offending)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
