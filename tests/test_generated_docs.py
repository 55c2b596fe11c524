"""Pages that are read off the program are up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parent.parent / "docs"


def test_generated_pages_are_up_to_date() -> None:
    """`make docs` would change nothing."""
    done = subprocess.run(
        [sys.executable, str(DOCS / "generate.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", sorted((DOCS / "images").iterdir()), ids=lambda path: path.name)
def test_pictures_are_whole_and_alone(path: Path) -> None:
    """A picture is well-formed, refers to nothing outside itself, and a page shows it."""
    text = path.read_text()
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert re.findall(r"href|url\(|@import|@font-face|<script|<style|(?<!xmlns=\")https?:", text) == []
    pages = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    assert any(f"images/{path.name})" in page.read_text() for page in pages)
