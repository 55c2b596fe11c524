"""Every example really does what the comment at its top says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.yaml"))
VERDICT = re.compile(r"^# expected: (\w+), exit (\d+)", re.MULTILINE)
STEP = re.compile(
    r"^#   ([\w+-]+) +(completed|recovered|failed, tolerated|failed|skipped|canceled|terminated|parked)\b"
    r"(?:.*?(\d+) attempts?)?",
    re.MULTILINE,
)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_comes_to_what_it_promises(path: Path, tmp_path: Path) -> None:
    """Exit code, verdict, and the status (and attempts) of each step that its comment names."""
    text = path.read_text()
    verdict = VERDICT.search(text)
    assert verdict is not None, "no expectation at the top"
    done = subprocess.run(
        [sys.executable, "-m", "resile.cli.main", "run", str(path), "--json"],
        cwd=tmp_path,
        env={**os.environ, "RESILE_DB": str(tmp_path / "r.db")},
        capture_output=True,
        check=False,
    )
    document = json.loads(done.stdout)
    assert (document["status"], done.returncode) == (verdict[1], int(verdict[2])), done.stderr.decode()
    jobs = {job["step"]: job for job in document["jobs"] if job["scope"] == "root"}
    promised = STEP.findall(text.partition("# expected with")[0])
    assert promised, "no step in the expectation"
    for name, status, attempts in promised:
        job = jobs[name]
        found = "parked" if job["status"] == "pending_failed" else job["status"]
        found = "recovered" if job["recovered"] else "failed, tolerated" if job["tolerated"] else found
        assert (name, found) == (name, status)
        if attempts:
            assert (name, job["attempts"]) == (name, int(attempts))
    assert not (tmp_path / "pwned").exists()
