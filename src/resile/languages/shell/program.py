"""The words that start a shell."""

from __future__ import annotations


def shell_words(program: str, errexit: bool) -> tuple[str, ...]:
    """The words that start a shell for a command; with `errexit` it stops at the first line that fails."""
    if not errexit:
        return (program,)
    return (program, "-e", "-o", "pipefail") if program.rpartition("/")[2] == "bash" else (program, "-e")
