"""git, for `commit_required`: which commit a folder has checked out."""

from __future__ import annotations

from resile.languages.references import ValueRefused
from resile.languages.waiting import waiting

GIT_SECONDS_MAX = 30.0


def head_of(directory: str) -> str:
    """The commit that a folder's repository has checked out, empty before the first.

    The loop goes on meanwhile (engine/evaluation/beside.py). Raises ValueRefused outside a repository, and where git
    gives no answer.
    """
    import subprocess

    def git(*words: str) -> tuple[int, str]:
        """Run one git command; its exit code and output."""
        argv = ["git", "-C", directory, *words]
        with waiting():
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=GIT_SECONDS_MAX, check=False
            )
        return done.returncode, done.stdout.strip()

    try:
        if git("rev-parse", "--is-inside-work-tree")[0]:
            raise ValueRefused("commit_required: the step does not run inside a git repository")
        code, head = git("rev-parse", "--verify", "--quiet", "HEAD")
    except OSError as error:
        raise ValueRefused(f"commit_required: git can't be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ValueRefused(f"commit_required: git gave no answer within {GIT_SECONDS_MAX:g} s") from None
    return head if not code else ""
