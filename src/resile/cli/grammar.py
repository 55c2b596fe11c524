"""The parts of a command in the table: options, arguments, and the options that every command takes.

Plain data and no imports, because every start of the program loads it.
"""

from __future__ import annotations

WHOLE_MAX = 10**18 - 1


class Option:
    """One option: its spellings, the name of its value ("" for a switch), and what a value must be.

    `kind` is text, count (a whole number from 1), whole (from 0), number (above 0), file or folder; a whole number is
    at most `most`. `old` is its spelling in the previous version, which is accepted with a note.
    """

    __slots__ = ("choices", "help", "kind", "many", "most", "names", "old", "value")

    def __init__(
        self,
        names: str,
        text: str,
        *,
        value: str = "",
        kind: str = "text",
        many: bool = False,
        choices: tuple[str, ...] = (),
        most: int = WHOLE_MAX,
        old: str = "",
    ) -> None:
        self.names = tuple(names.split())
        self.help = text
        self.value = value
        self.kind = kind
        self.many = many
        self.choices = choices
        self.most = most
        self.old = old

    @property
    def key(self) -> str:
        """The key of the option in a Call: the long spelling without its dashes."""
        return self.names[-1].lstrip("-")


class Argument:
    """One positional word; `kind` is run (an id), file, step, or text; `count` is 1, ? (optional) or + (several)."""

    __slots__ = ("choices", "count", "kind", "name")

    def __init__(self, name: str, kind: str, count: str = "1", choices: tuple[str, ...] = ()) -> None:
        self.name = name
        self.kind = kind
        self.count = count
        self.choices = choices

    def usage(self) -> str:
        """The argument as in a usage line."""
        return {"1": self.name, "?": f"[{self.name}]", "+": f"{self.name}..."}[self.count]


class Command:
    """One command; `target` is `module:function` of this package, `function(call) -> exit code`."""

    __slots__ = ("about", "arguments", "examples", "exits", "group", "name", "options", "summary", "target")

    def __init__(
        self,
        name: str,
        group: str,
        target: str,
        summary: str,
        *,
        about: str = "",
        arguments: tuple[Argument, ...] = (),
        options: tuple[Option, ...] = (),
        examples: tuple[str, ...] = (),
        exits: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.group = group
        self.target = target
        self.summary = summary
        self.about = about
        self.arguments = arguments
        self.options = options
        self.examples = examples
        self.exits = exits


JSON = Option("--json", "print one JSON document on stdout and nothing else there")
COLOR = Option("--color", "color the output; auto obeys NO_COLOR", value="WHEN", choices=("auto", "always", "never"))
DB = Option(
    "--db", "the database: a path or sqlite:///PATH (else $RESILE_DB, else the user's own)", value="DB", kind="file"
)
HELP = Option("-h --help", "show this help")
# Every command takes these options, before or after its name.
COMMON = (DB, JSON, COLOR, HELP)
