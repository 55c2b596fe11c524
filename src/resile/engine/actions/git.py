"""git, for `commit_required`: which commit a folder has checked out."""

from __future__ import annotations

GIT_SECONDS_MAX = 30


def head_of(directory: str) -> str | None:
    """The commit that a folder's repository has checked out, empty before the first; None outside a repository."""
    import subprocess

    def git(*words: str) -> tuple[int, str]:
        """Run one git command; its exit code and output."""
        done = subprocess.run(
            ["git", "-C", directory, *words], capture_output=True, text=True, timeout=GIT_SECONDS_MAX, check=False
        )
        return done.returncode, done.stdout.strip()

    try:
        if git("rev-parse", "--is-inside-work-tree")[0]:
            return None
        code, head = git("rev-parse", "--verify", "--quiet", "HEAD")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head if not code else ""
