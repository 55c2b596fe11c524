"""git, for `commit_required`: which commit a folder has checked out."""

from __future__ import annotations

from resile.languages.references import ValueRefused
from resile.languages.waiting import waiting

GIT_SECONDS_MAX = 30.0


class NoAnswer(Exception):
    """Git can't be run, or gives no answer."""


def head_of(directory: str) -> str:
    """The commit that the repository of a step has checked out, empty before the first.

    Raises ValueRefused outside a repository, or if git gives no answer.
    """
    try:
        head = find_head(directory)
    except NoAnswer as problem:
        raise ValueRefused(f"commit_required: {problem}") from None
    if head is None:
        raise ValueRefused("commit_required: the step does not run inside a git repository")
    return head


def find_head(directory: str) -> str | None:
    """The commit that a folder's repository has checked out, empty before the first; None outside a repository.

    While git runs, the engine's loop goes on (engine/evaluation/beside.py). Raises NoAnswer.
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
            return None
        code, head = git("rev-parse", "--verify", "--quiet", "HEAD")
    except OSError as error:
        raise NoAnswer(f"git can't be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"git gave no answer within {GIT_SECONDS_MAX:g} s") from None
    return head if not code else ""
