"""Lists the items of a fan-out from a file or from a command's output, as the program of its step.

    RESILE_STEP (JSON): source (with every value in place), folder, into
    into: the items file        stdout: how many items it has        stderr: the error, as its last line
    exit: 0 done, 2 the input is wrong, 1 the items file can't be written, or the exit code of the command

A path is searched in `folder`, then in the directory of the step. A command's output goes to a file and is read only
after the command has succeeded, because the output of a failed one is incomplete.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

    from resile.executors.programs.items.read import Form
    from resile.model.fanout import Source

EXIT_UNWRITABLE = 1
EXIT_WRONG = 2
EXIT_NO_SHELL = 127
TAIL_BYTES = 4 * 1024


class CommandFailed(Exception):
    """The command that prints the items failed; has a message and the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def main() -> int:
    """List the items; return the exit code."""
    orders = json.loads(os.environ.pop("RESILE_STEP"))
    # The interpreter runs isolated and may not know where the package is.
    sys.path.append(
        os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
    )
    import msgspec

    from resile.executors.programs.items.text import ItemsRefused
    from resile.model.fanout import Source

    source = msgspec.convert(orders["source"], Source)
    try:
        count = _list(source, orders["folder"], orders["into"], orders["since"])
    except ItemsRefused as problem:
        return _end(problem.message, EXIT_WRONG)
    except CommandFailed as problem:
        return _end(str(problem), problem.code)
    except OSError as error:
        return _end(f"can't write {orders['into']}: {error.strerror}", EXIT_UNWRITABLE)
    print(count)
    return 0


def _list(source: Source, folder: str, into: str, since: float | None) -> int:
    """Write the items file; return the number of items."""
    from resile.executors.programs.items.read import form_of, open_input
    from resile.model.folders import create_file, make_folder

    if source.path:
        with open_input(source.path, folder, os.getcwd(), since) as file:
            return _write(file, form_of(source.path), source.path, source, into)
    make_folder(os.path.dirname(into))
    with create_file(f"{into}.out", os.O_RDWR | os.O_TRUNC) as file:
        # The file has no name, so that it disappears with this process, however that ends.
        os.unlink(f"{into}.out")
        _run(source, into, file)
        file.seek(0)
        return _write(file, "output", "the output of the command", source, into)


def _write(file: BinaryIO, form: Form, label: str, source: Source, into: str) -> int:
    """Write the items of a text; errors name the text."""
    from resile.executors.programs.items.read import read_texts
    from resile.executors.programs.items.select import write_items
    from resile.executors.programs.items.text import ItemsRefused

    try:
        return write_items(into, read_texts(file, form, source.json_path), source)
    except ItemsRefused as problem:
        raise ItemsRefused(f"{label}: {problem.message}") from problem


def _run(source: Source, into: str, output: BinaryIO) -> None:
    """Run the command with its output in a file; print its stderr, whose last line explains a failure."""
    import shutil
    import subprocess

    from resile.languages.shell.program import shell_words
    from resile.model.folders import create_file

    with create_file(f"{into}.err", os.O_RDWR | os.O_TRUNC) as complaints:
        os.unlink(f"{into}.err")
        argv = [*shell_words(source.program, source.errexit), "-c", source.command]
        try:
            code = subprocess.run(argv, stdout=output, stderr=complaints, check=False).returncode
        except OSError as error:
            raise CommandFailed(f"can't run {source.program}: {error.strerror}", EXIT_NO_SHELL) from error
        complaints.seek(0)
        shutil.copyfileobj(complaints, sys.stderr.buffer)
        complaints.seek(max(complaints.tell() - TAIL_BYTES, 0))
        last = complaints.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
    if code:
        how = f"exited with {code}" if code > 0 else f"was ended by signal {-code}"
        message = f"the command that lists the items {how}" + (f": {last}" if last else "")
        raise CommandFailed(message, code if code > 0 else 128 - code)


def _end(message: str, code: int) -> int:
    line = "".join(character if character.isprintable() else " " for character in message)
    sys.stderr.buffer.write(line.encode("utf-8", "replace") + b"\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
