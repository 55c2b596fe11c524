"""The `resile` program: find the command, load its module, and let no traceback reach the user.

    words -> split -> find_command -> parse -> the command's function(call) -> exit code
                                          any exception -> problems.py      -> exit code

Only what every start needs is imported here: `resile --help` must be done in the time that a bare interpreter takes
to start three times.
"""

from __future__ import annotations

import os
import sys

from resile.surfaces.cli.arguments import find_command, parse, split

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def main(words: list[str] | None = None) -> int:
    """Carry out one command line; the exit code."""
    words = sys.argv[1:] if words is None else words
    _open_closed_streams()
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`): end quietly, as a program killed by SIGPIPE would.
        from resile.surfaces.cli.output import abandon_stdout

        abandon_stdout()
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        from resile.surfaces.cli.problems import report

        return report(error, json="--json" in words, debug="--debug" in words)
    return code


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

        sys.stdout.write(f"resile {__version__}\n")
        return 0
    name, rest = split(words)
    if name == "help":
        name, rest = split(rest)
        rest = ["--help"]
    if not name:
        from resile.surfaces.cli.help import overview

        sys.stdout.write(overview())
        return 0
    if name == "events" and rest in (["--help"], ["-h"]):
        return _show_help("events ls", "events follow")
    command = find_command(name)
    call = parse(command, rest)
    if call.flag("help"):
        return _show_help(name)
    module, function = command.target.split(":")
    loaded = __import__(f"resile.surfaces.cli.{module}", fromlist=[function])
    code: int = getattr(loaded, function)(call)
    return code


def _show_help(*names: str) -> int:
    """Print how these commands are called."""
    from resile.surfaces.cli.help import command_help

    sys.stdout.write("\n".join(command_help(find_command(name)) for name in names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
