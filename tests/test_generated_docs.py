"""Pages that are read off the program are up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_generated_pages_are_up_to_date() -> None:
    """`make docs` would change nothing."""
    generator = Path(__file__).parent.parent / "docs" / "generate.py"
    done = subprocess.run([sys.executable, str(generator), "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
