"""The `resile` program: find the command, load its module, and let no traceback reach the user.

    words -> split -> find_command -> parse -> the command's function(call) -> exit code
                                          any exception -> problems.py      -> exit code

This module imports only what every start needs (startup.py says why), and ends the program without interpreter cleanup.
"""

from __future__ import annotations

import _signal
import os
import sys

from resile.cli.parse import find_command, parse, split
from resile.cli.settings import load_settings
from resile.cli.startup import load_command
from resile.cli.table import FAMILIES, RENAMED

# A constant, because loading `typing` for it would cost more than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def main() -> NoReturn:
    """Execute the command line, and exit.

    It exits with os._exit, because the interpreter would first tear down every module, for nothing: all files and
    streams are already written.
    """
    os._exit(carry_out(sys.argv[1:]))


def carry_out(words: list[str]) -> int:
    """Execute one command line; return the exit code."""
    _open_closed_streams()
    # Our caller may ignore SIGCHLD, and we inherit that: then the system drops the exit codes of our processes.
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    try:
        return _answer(words)
    except BrokenPipeError:
        # The reader of our output is gone (`| head`): end quietly, as a program killed by SIGPIPE would.
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _answer(words: list[str]) -> int:
    """Dispatch, and report errors."""
    try:
        return _dispatch(words)
    except BrokenPipeError:
        raise
    except Exception as error:
        from resile.cli.display.problems import report

        return report(error, json="--json" in words, debug="--debug" in words)


def _print(text: str) -> None:
    """Print text on stdout, unbuffered; an error names standard output."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        error.filename = "standard output"
        raise


def _open_closed_streams() -> None:
    """Open /dev/null for each standard stream that the caller closed.

    Otherwise the next file we open, perhaps the database, would get its number, and our output would go into that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # The system assigns the lowest free number, so this is `number`.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


def _dispatch(words: list[str]) -> int:
    """Handle --version, --help and completion, else load the command and call it."""
    if words and words[0] in ("--version", "-V"):
        from resile.version import __version__

        _print(f"resile {__version__}\n")
        return 0
    if words[:2] == ["__complete", "--"]:
        from resile.cli.complete import answer

        _print(answer(words[2:]))
        return 0
    name, rest = split(words)
    if name == "help":
        name, rest = split(rest)
        rest = ["--help"]
    if not name:
        from resile.cli.help import overview

        _print(overview())
        return 0
    if name in FAMILIES and rest in (["--help"], ["-h"]):
        return _show_help(*(f"{name} {member}" for member in FAMILIES[name]))
    command = find_command(name)
    call = parse(command, rest)
    if call.flag("help"):
        return _show_help(name)
    if name in RENAMED:
        call.renamed[name] = command.name
    call.settings = load_settings()
    if call.server:
        from resile.cli.remote import refuse_local

        refuse_local(call)
    function = load_command(call)
    if call.renamed:
        from resile.cli.display.output import say

        for old, new in call.renamed.items():
            say(f"resile: note: `{old}` is called `{new}` now; the next version will not know the old name")
    try:
        return function(call)
    finally:
        call.close()


def _show_help(*names: str) -> int:
    """Print the help of these commands."""
    from resile.cli.help import command_help

    _print("\n".join(command_help(find_command(name)) for name in names))
    return 0


if __name__ == "__main__":
    main()
