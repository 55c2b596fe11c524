"""Output to stdout and stderr, and its colors; every command uses this.

stdout carries the result: text, or with `--json` exactly one document. Everything else goes to stderr, with plain
writes that are safe in a signal handler and never end a run when stderr is closed. A terminal gets no control
characters but colors (terminal.py), whatever stands in names, values and messages.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import msgspec

from resile.cli.display.terminal import harmless

if TYPE_CHECKING:
    from resile.cli.parse import Call

D = TypeVar("D")

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
STATUS_COLORS = {
    "completed": "green",
    "recovered": "green",
    "tolerated": "yellow",
    "waiting": "dim",
    "skipped": "dim",
    "failed": "red",
    "running": "cyan",
    "recovering": "yellow",
    "interrupted": "yellow",
    "parked": "yellow",
    "pending_failed": "yellow",
    "canceled": "yellow",
    "terminated": "yellow",
}
TAIL_LINES_MAX = 10
# The width of a page that is not a terminal: lines stay whole.
ENDLESS_COLUMNS = 1_000_000
CELL_COLUMNS_MIN = 8
# A word with the blanks before it; a command in backticks is one word.
# The beginning of a line with a word in a column of its own.
# As texts: `re` compiles and keeps them when a long line is first folded, which a short run never does.
_COLUMN = r" *\S+(?: \S+)? {2,}"
_WORD = r"\s*(?:`[^`]*`|[^\s`]|`)+"
_CODE = r"\x1b\[[0-9]*m"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_")


def answer(call: Call, document: D, lines_of: Callable[[D, Page], Iterable[str]]) -> int:
    """Print the result of a command: as JSON for programs, as the lines that `lines_of` makes of it for people."""
    if call.json:
        print_document(document)
    else:
        write_text("\n".join(lines_of(document, Page(call.color, sys.stdout, place_of(call)))) + "\n")
    return 0


def print_document(document: object) -> None:
    """Print one JSON document on stdout; indented for a person, on one line for a program."""
    data = encode(document)
    if sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    write_bytes(data + b"\n")


def encode(document: object) -> bytes:
    """The JSON of any document; invalid text in it becomes the replacement character."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return msgspec.json.encode(_legible(msgspec.to_builtins(document)))


def _legible(value: Any) -> Any:
    """The document without surrogates, which represent invalid bytes or half a character."""
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        except UnicodeEncodeError:
            # Half a character, from JSON, does not represent a byte.
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_legible(key): _legible(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_legible(item) for item in value]
    return value


def write_bytes(data: bytes) -> None:
    """Write to stdout, unbuffered: the bytes, or for a terminal their text without control characters."""
    if sys.stdout.isatty():
        data = harmless(data.decode("utf-8", "backslashreplace")).encode("utf-8", "backslashreplace")
    write_raw(data)


def write_raw(data: bytes) -> None:
    """Write bytes to stdout, unbuffered, whatever they are."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        # Data that is still buffered would fail again with the next write.
        abandon_stdout()
        error.filename = "standard output"
        raise


def write_text(text: str) -> None:
    """Write text to stdout, whatever the locale."""
    write_bytes(text.encode("utf-8", "backslashreplace"))


@contextmanager
def stdout_reserved_for_json(json: bool) -> Iterator[None]:
    """Reserve stdout for the document while a run goes: redirect the output of functions in threads to stderr."""
    if not json:
        yield
        return
    stream, place = sys.stdout, os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = stream
        os.dup2(place, 1)
        os.close(place)


def abandon_stdout() -> None:
    """Redirect stdout to /dev/null: its reader is gone, and buffered data would fail at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def say(text: str) -> None:
    """Print lines on stderr; safe in a signal handler, silent if stderr is closed."""
    data = ((harmless(text) if os.isatty(2) else text) + "\n").encode("utf-8", "backslashreplace")
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        # The run matters more than its messages.
        return


class Page:
    """The text of a command on one stream: its colors, its width, and the option that hints repeat."""

    __slots__ = ("columns", "is_colored", "place")

    def __init__(self, when: str, stream: TextIO, place: str = "") -> None:
        wants_color = is_terminal(stream) and not os.environ.get("NO_COLOR")
        self.is_colored = when == "always" or (when == "auto" and wants_color)
        self.columns = _columns(stream)
        self.place = place

    def paint(self, color: str, text: str) -> str:
        """The text in this color, if colors are on and the text is not empty."""
        code = _CODES.get(color)
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_colored and code and text else text

    def status(self, status: str, text: str = "") -> str:
        """A status in its color."""
        return self.paint(STATUS_COLORS.get(status, ""), text or status)

    def command(self, words: str) -> str:
        """A command for the user to copy, with the database or the server of this call."""
        return command_hint(words, self.place)

    def fit(self, text: str) -> str:
        """The text, cut with an ellipsis if it is wider than the page."""
        return fit(text, self.columns)

    def wrap_column(self, text: str) -> list[str]:
        """The text on as many lines as its width needs; the second and later ones begin where its last column does."""
        import re

        found = re.match(_COLUMN, re.sub(_CODE, "", text))
        size = len(found[0]) if found else len(text) - len(text.lstrip()) + 4
        return self.wrap(text, " " * min(size, self.columns // 2))

    def wrap(self, text: str, hang: str = "") -> list[str]:
        """The text on as many lines as its width needs; the second and later ones begin with `hang`."""
        if self.columns == ENDLESS_COLUMNS:
            return [text]
        import re

        if width(re.sub(_CODE, "", text)) <= self.columns:
            return [text]
        lines = [""]
        for word in re.findall(_WORD, text):
            if lines[-1].strip() and width(re.sub(_CODE, "", lines[-1] + word)) > self.columns:
                lines.append(hang + word.lstrip())
            else:
                lines[-1] += word
        return lines

    def table(
        self,
        rows: Sequence[Sequence[str]],
        heads: Sequence[str] = (),
        indent: str = "",
        spare: Sequence[int] = (),
        status: int | None = 1,
    ) -> list[str]:
        """Align columns; the cells at the place `status` have its color, and are never cut. Heads are dim.

        If the table would not fit, the widest column shrinks; if that is not enough, the columns at the places `spare`
        are left out, the first of these first.
        """
        if not rows:
            return []
        room = self.columns - len(indent)
        columns = zip(*([heads] if heads else []), *rows, strict=True)
        sizes = _shrunk([max(map(width, cells)) for cells in columns], room, status)
        if sum(sizes) + 2 * (len(sizes) - 1) > room and spare:
            place, *others = spare
            without = [[*row[:place], *row[place + 1 :]] for row in (heads, *rows)]
            moved = [other - (other > place) for other in others]
            return self.table(without[1:], without[0], indent, moved, status and status - (status > place))
        lines = [self.paint("dim", "  ".join(_cells(heads, sizes)).rstrip())] if heads else []
        for row in rows:
            cells = _cells(row, sizes)
            if status is not None:
                cells[status] = self.status(row[status], cells[status])
            lines.append(indent + "  ".join(cells).rstrip())
        return lines

    def commands(self, commands: Iterable[tuple[str, str]]) -> list[str]:
        """Commands for the user to copy, each with a remark: beside it, or below it where the page is narrow."""
        found = list(commands)
        size = max((len(command) for command, _ in found), default=0)
        lines = [f"  {command:<{size}}  # {remark}" for command, remark in found]
        if max(map(width, lines), default=0) <= self.columns:
            return lines
        # A command is never cut: it is there to be copied.
        return [line for command, remark in found for line in (f"  {command}", *self.wrap(f"    # {remark}", "      "))]

    def tail(self, text: str, name: str, indent: str = "") -> list[str]:
        """The last lines of a step's output, under the name of the stream; nothing if it is empty."""
        shown = text.rstrip("\n").split("\n")
        if not text.strip():
            return []
        cut = f", last {TAIL_LINES_MAX} lines" if len(shown) > TAIL_LINES_MAX else ""
        before, size = f"{indent}  {self.paint('dim', '|')} ", self.columns - len(indent) - 4
        lines = [(before + fit(escape(line), size)).rstrip() for line in shown[-TAIL_LINES_MAX:]]
        return [f"{indent}  {self.paint('dim', name + cut)}", *lines]


def _shrunk(sizes: list[int], room: int, status: int | None) -> list[int]:
    """The sizes of columns, the widest made smaller until all fit; that of the status stays."""
    while sum(sizes) + 2 * (len(sizes) - 1) > room:
        widest = max((place for place in range(len(sizes)) if place != status), key=sizes.__getitem__, default=0)
        if sizes[widest] <= CELL_COLUMNS_MIN:
            break
        sizes[widest] -= 1
    return sizes


def _cells(row: Sequence[str], sizes: list[int]) -> list[str]:
    return [pad(fit(cell, size), size) for cell, size in zip(row, sizes, strict=True)]


def is_terminal(stream: TextIO) -> bool:
    """Is this a terminal that can move its cursor?"""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _columns(stream: TextIO) -> int:
    """The width of a terminal, or what $COLUMNS says of it; anything else, such as a pipe, gets whole lines."""
    try:
        size = os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return ENDLESS_COLUMNS
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdigit() and int(given) else size


def status_word(status: str, *, recovered: bool = False, tolerated: bool = False) -> str:
    """The status of a step in the one word that people read everywhere."""
    if recovered and status == "completed":
        return "recovered"
    if tolerated and status == "failed":
        return "tolerated"
    from resile.model.status import STATUS_WORDS

    return STATUS_WORDS.get(status, status)


def duration(seconds: float) -> str:
    """A duration for people: 0.4 s, 12 s, 3 min 05 s, 2 h 10 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def delay(seconds: float) -> str:
    """A wait for people; a short one to the millisecond, like its rule."""
    return duration(seconds) if seconds >= 1 else f"{round(seconds, 3):g} s"


def clock(at: float) -> str:
    """The time of day in the user's time zone."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def moment(stamp: str | None) -> float:
    """The seconds since 1970 of a document's ISO 8601 time; 0 if there is none."""
    from datetime import datetime

    return msgspec.convert(stamp, datetime).timestamp() if stamp else 0.0


def day(stamp: str | None) -> str:
    """A document's time as date and time in the user's time zone; empty if there is none."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment(stamp))) if stamp else ""


def plural(count: int, word: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def escape(text: str) -> str:
    """Text from outside on one line, with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else " " if letter in "\n\t\r" else ascii(letter)[1:-1] for letter in text
    ).strip()


def short_rule(rule: object) -> str:
    """A rule and its place, without the folders of its file."""
    file, colon, rest = str(rule).partition(":")
    return file.rpartition("/")[2] + colon + rest


def width(text: str) -> int:
    """The number of columns of a text: East Asian letters take two, combining marks none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def fit(text: str, limit: int) -> str:
    """The text, cut with an ellipsis if it is wider than `limit` columns."""
    if width(text) <= limit:
        return text
    kept = text[: max(limit - 1, 0)]
    while kept and width(kept) > limit - 1:
        kept = kept[:-1]
    return kept + "…"


def pad(text: str, size: int) -> str:
    """The text with spaces up to `size` columns."""
    return text + " " * (size - width(text))


def shell_quote(word: str) -> str:
    """A word quoted for a shell."""
    if word and _PLAIN.issuperset(word):
        return word
    return "'" + word.replace("'", "'\\''") + "'"


def place_of(call: Call) -> str:
    """The option that names the database or the server of this call; empty if it has none."""
    for name in ("server", "db"):
        if given := call.text(name):
            return f" --{name} {shell_quote(given)}"
    return ""


def command_hint(verb: str, place: str) -> str:
    """A command for the user to copy, with the database or the server of this call."""
    return f"resile {verb}{place}"
