"""The `resile` program: find the command, load its module, and let no traceback reach the user.

    words -> split -> find_command -> parse -> the command's function(call) -> exit code
                                          any exception -> problems.py      -> exit code

Only what every start needs is imported here: `resile --help` must be done in the time that a bare interpreter takes
to start three times, and a durable run of one step in six. So a launcher is started before everything else that a
run needs is loaded, and the program ends without taking itself apart.
"""

from __future__ import annotations

import os
import sys

from resile.cli.parse import find_command, parse, split
from resile.cli.table import FAMILIES, RENAMED

# Spelled out, because loading `typing` for its names would cost more than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from resile.cli.parse import Call

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
# These commands start steps, so they need a launcher.
DRIVING = ("run", "resume", "rerun")


def main() -> NoReturn:
    """The program: carry out the command line, and end.

    At once, because an interpreter that ends by itself first takes every module apart, which nobody needs: whatever
    had to reach a file or a stream is there by now.
    """
    os._exit(carry_out(sys.argv[1:]))


def carry_out(words: list[str]) -> int:
    """Carry out one command line; the exit code."""
    _open_closed_streams()
    try:
        code = _answer(words)
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`): end quietly, as a program killed by SIGPIPE would.
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code


def _answer(words: list[str]) -> int:
    """Dispatch, and report what goes wrong."""
    try:
        return _dispatch(words)
    except BrokenPipeError:
        raise
    except Exception as error:
        from resile.cli.display.problems import report

        return report(error, json="--json" in words, debug="--debug" in words)


def _print(text: str) -> None:
    """Text on stdout, at once; an error says what it was that could not be written."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        error.filename = "standard output"
        raise


def _open_closed_streams() -> None:
    """Give a stream that the caller closed a place to go to.

    Else the next file that is opened, perhaps the database, gets its number, and what we say goes into that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # The lowest free number is given out first, so this is `number`.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


def _dispatch(words: list[str]) -> int:
    """Answer what needs no command, else load the command and call it."""
    if words and words[0] in ("--version", "-V"):
        from resile import __version__

        _print(f"resile {__version__}\n")
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
    return _call(call)


def _call(call: Call) -> int:
    """Load a command's function and call it."""
    import gc

    # Loading makes many objects and no garbage; a command that drives turns the collector on when it has begun.
    gc.disable()
    drives = call.command.name in DRIVING
    if drives:
        from resile.executors.local.prestart import prestart

        call.launcher = prestart()
    _load_msgspec()
    module, function = call.command.target.split(":")
    loaded = __import__(f"resile.cli.{module}", fromlist=[function])
    if not drives:
        gc.enable()
    if call.renamed:
        from resile.cli.display.output import say

        for old, new in call.renamed.items():
            say(f"resile: note: `{old}` is called `{new}` now; the next version will not know the old name")
    try:
        code: int = getattr(loaded, function)(call)
    finally:
        call.close()
    return code


class _Later(type(sys)):  # type: ignore[misc]
    """A module that is loaded when something of it is asked for."""

    def __getattr__(self, name: str) -> object:
        """What the real one has."""
        return getattr(__import__(str(self.__name__)), name)


def _load_msgspec() -> None:
    """Load msgspec without what it needs for other types than ours, or not before it is asked for.

    It takes typing_extensions where that is installed, and the inspect and ast modules that come with it are a tenth
    of the time in which a run of one step must be done. platform is loaded for the name of the system, textwrap for
    the schemas that nobody asks for: each compiles a dozen patterns.
    """
    platform = _Later("platform")
    platform.system = lambda: os.uname().sysname
    aside = {"typing_extensions": None, "platform": platform, "textwrap": _Later("textwrap")}
    aside = {name: module for name, module in aside.items() if name not in sys.modules}
    sys.modules.update(aside)  # type: ignore[arg-type]
    try:
        __import__("msgspec")
    finally:
        for name in aside:
            del sys.modules[name]


def _show_help(*names: str) -> int:
    """Print how these commands are called."""
    from resile.cli.help import command_help

    _print("\n".join(command_help(find_command(name)) for name in names))
    return 0


if __name__ == "__main__":
    main()
