"""The parts of a command in the table: options, arguments, and the options that every command takes.

Plain data and no imports, because every start of the program loads it.
"""

from __future__ import annotations

WHOLE_MAX = 10**18 - 1
# The arguments that must be one of a few words.
CHOICES = {"VERDICT": ("retry", "retry-with", "skip", "fail"), "SHELL": ("bash", "zsh", "fish")}
KINDS = {"RUN": "run", "FILE": "file", "STEP": "step", "JOB": "step", "FILE|RUN": "file"}


class Option:
    """One option: its spellings and the name of its value ("" for a switch) in one text, and what a value must be.

    `kind` is text, count (a whole number from 1), whole (from 0), integer, number (above 0), event, file or folder. A
    whole number is at most `most`. A value whose name ends in dots takes several words. `old` is its spelling in the
    previous version, which is accepted with a note.
    """

    __slots__ = ("choices", "help", "kind", "many", "most", "names", "old", "value")

    def __init__(
        self,
        usage: str,
        text: str,
        *,
        kind: str = "text",
        many: bool = False,
        choices: tuple[str, ...] = (),
        most: int = WHOLE_MAX,
        old: str = "",
    ) -> None:
        words = usage.split()
        self.value = "" if words[-1].startswith("-") else words.pop()
        self.names = tuple(words)
        self.help = text
        self.kind = kind
        self.many = many
        self.choices = choices
        self.most = most
        self.old = old

    @property
    def takes_words(self) -> bool:
        """May several words follow the option?"""
        return self.value.endswith("...")

    @property
    def key(self) -> str:
        """The key of the option in a Call: the long spelling without its dashes."""
        return self.names[-1].lstrip("-")


class Argument:
    """One positional word, as a usage line shows it: NAME, [NAME] if it is optional, NAME... for one or more.

    Its name decides its kind, which is run (an id), file, step or text, and its choices.
    """

    __slots__ = ("choices", "is_optional", "kind", "name", "takes_many")

    def __init__(self, usage: str) -> None:
        self.name = usage.strip("[.]")
        self.is_optional = usage.startswith("[")
        self.takes_many = usage.endswith("...")
        self.kind = KINDS.get(self.name, "text")
        self.choices = CHOICES.get(self.name, ())


class Command:
    """One command: `usage` has its name and its arguments, which are in capitals.

    `target` is `module:function` of this package, `function(call) -> exit code`. A command that `drives` a run starts
    steps, so a launcher is started for it while its module is loaded.
    """

    __slots__ = ("about", "drives", "examples", "exits", "name", "options", "summary", "target", "usage")

    def __init__(
        self,
        usage: str,
        target: str,
        summary: str,
        *,
        about: str = "",
        options: tuple[Option, ...] = (),
        examples: tuple[str, ...] = (),
        exits: tuple[str, ...] = (),
        drives: bool = False,
    ) -> None:
        self.usage = usage
        self.name = " ".join(word for word in usage.split() if word.islower())
        self.target = target
        self.summary = summary
        self.about = about
        self.options = options
        self.examples = examples
        self.exits = exits
        self.drives = drives

    @property
    def arguments(self) -> list[Argument]:
        """The arguments, in order."""
        return [Argument(word) for word in self.usage.split() if not word.islower()]


JSON = Option("--json", "print one JSON document on stdout and nothing else there")
COLOR = Option("--color WHEN", "color the output; auto obeys NO_COLOR", choices=("auto", "always", "never"))
_DB = "the database: a path, sqlite:///PATH or postgresql://HOST/NAME (else $RESILE_DB, else the user's own)"
DB = Option("--db DB", _DB, kind="file")
_SERVER = "a server instead of a database, such as http://127.0.0.1:8700 (else $RESILE_SERVER)"
SERVER = Option("--server URL", _SERVER)
TOKEN_FILE = Option("--token-file FILE", "a file with the token for the server alone (else $RESILE_TOKEN)", kind="file")
HELP = Option("-h --help", "show this help")
# Every command takes these options, before or after its name.
COMMON = (DB, SERVER, TOKEN_FILE, JSON, COLOR, HELP)
