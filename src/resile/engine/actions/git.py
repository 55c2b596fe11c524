"""git, as far as `commit_required` needs it: which commit a folder stands at."""

from __future__ import annotations

GIT_SECONDS_MAX = 30


def head_of(directory: str) -> str | None:
    """The commit that a folder's repository stands at, empty before the first; None outside a repository."""
    import subprocess

    def git(*words: str) -> tuple[int, str]:
        """One question to git."""
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
