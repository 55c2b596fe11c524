"""The digests of files and folders, and their cache."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from resile.engine.fingerprints.digests import FILE, Digests, look_of

LONG_AGO = 1_000_000_000


def test_files_folders_and_nothing(tmp_path: Path) -> None:
    """A file has the SHA-256 of its contents; what is not there, or is no file or folder, has none."""
    whole = tmp_path / "whole"
    whole.write_bytes(b"x" * 3_000_000)
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    paths = [str(tmp_path / name) for name in ("whole", "empty", "pipe", "missing")]
    digests = Digests(str(tmp_path)).of(paths)
    sums = [hashlib.sha256(data).hexdigest() for data in (b"x" * 3_000_000, b"")]
    assert [digests[path] for path in paths] == [*sums, "", ""]
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "deep" / "file").write_text("1")
    folder = str(tmp_path / "folder")
    before, look = Digests(str(tmp_path)).of([folder])[folder], look_of(folder)
    os.rename(tmp_path / "folder" / "deep" / "file", tmp_path / "folder" / "deep" / "other")
    assert before not in ("", Digests(str(tmp_path)).of([folder])[folder])
    assert look_of(folder) != look


def test_a_damaged_cache_is_replaced(tmp_path: Path) -> None:
    """Whatever is in the place of the cache, the digests are right."""
    path = tmp_path / "file"
    path.write_text("1")
    (tmp_path / FILE).write_bytes(b"no database at all, but long enough to be taken for one" * 100)
    right = hashlib.sha256(b"1").hexdigest()
    for _ in range(3):
        assert Digests(str(tmp_path)).of([str(path)]) == {str(path): right}
    assert Digests(str(tmp_path / "missing")).of([str(path)]) == {str(path): right}


def test_a_file_that_changed_a_moment_ago_is_not_cached(tmp_path: Path) -> None:
    """Two contents of one size within one moment have two digests, although times are set back."""
    path = tmp_path / "file"
    digests = Digests(str(tmp_path))
    for text in ("1", "2", "3"):
        path.write_text(text)
        os.utime(path, (LONG_AGO, LONG_AGO))
        assert digests.of([str(path)]) == {str(path): hashlib.sha256(text.encode()).hexdigest()}
    assert not (tmp_path / FILE).exists()
