"""From words to a `Call`: the parser behind the table of commands.

    words --split--> Command + words --parse--> Call (options by name, arguments by name)

Not argparse, because that takes longer to load than all of a one-step run may take besides the engine. It
knows `--name value`, `--name=value`, `-x`, and `--` before words that only look like options.
"""

from __future__ import annotations

from resile.cli.grammar import COMMON, WHOLE_MAX, Argument, Command, Option
from resile.cli.settings import Settings
from resile.cli.table import ALIASES, COMMANDS_BY_NAME, FAMILIES, RENAMED
from resile.cli.table_daily import ELSEWHERE

WHOLE_SHOWN_MAX = 40
# There are many options, so a short word always resembles one of them a little.
OPTION_CUTOFF = 0.75
# For a command that lacks the number of a run, or has something else there.
RUNS_HINT = "`resile ls` lists the runs"

# A constant, because loading `typing` for it would cost more than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from resile.commands.client import Client
    from resile.errors import ResileError
    from resile.executors.local.prestart import Prestarted


class Call:
    """One command with its options and arguments; options that were not given are None, or empty.

    `launcher` was prestarted for a command that drives a run. `renamed` maps each spelling of the previous version that
    was used to the new one. `settings` are the values of the configuration.
    """

    __slots__ = ("_client", "_values", "command", "launcher", "renamed", "settings")

    def __init__(self, command: Command, values: dict[str, list[str]]) -> None:
        self.command = command
        self.launcher: Prestarted | None = None
        self.renamed: dict[str, str] = {}
        self.settings = Settings()
        self._client: Client | None = None
        self._values = values

    def flag(self, key: str) -> bool:
        """Was a switch given?"""
        return key in self._values

    def text(self, key: str) -> str | None:
        """The value of an option or an argument; the last one if it was given more than once."""
        given = self._values.get(key)
        return given[-1] if given else None

    def texts(self, key: str) -> list[str]:
        """Every value of an option or an argument, in order."""
        return self._values.get(key, [])

    def whole(self, key: str) -> int | None:
        """The value of an option of kind count or whole."""
        given = self.text(key)
        return None if given is None else int(given)

    def integer(self, key: str) -> int:
        """The value of an option of kind integer; 0 if it was not given."""
        return int(self.text(key) or 0)

    def number(self, key: str) -> float | None:
        """The value of an option of kind number."""
        given = self.text(key)
        return None if given is None else float(given)

    def word(self, key: str) -> str:
        """The value of an option or an argument; empty if it was not given."""
        return self.text(key) or ""

    def pairs(self, key: str) -> dict[str, str]:
        """The values of an option that is NAME=VALUE and can be given again."""
        found: dict[str, str] = {}
        for text in self.texts(key):
            name, equals, value = text.partition("=")
            if not name or not equals or not text.isprintable():
                raise refusal(f"--{key} {text!r} is not NAME=VALUE", f"such as --{key} team=data")
            if found.setdefault(name, value) != value:
                raise refusal(f"--{key} {name}= is given twice, as {found[name]!r} and as {value!r}")
        return found

    def moment(self, key: str) -> float | None:
        """The Unix time of an option that is a time, or a duration before now."""
        given = self.text(key)
        if given is None:
            return None
        import time
        from datetime import datetime

        from resile.dialects.reading.durations import duration_seconds

        try:
            # A bare number would be a duration in seconds and a year alike.
            if not given.isdigit():
                return time.time() - duration_seconds(given)
        except ValueError:
            pass
        try:
            return datetime.fromisoformat(given).timestamp()
        except (ValueError, OverflowError) as error:
            hint = "a duration such as 90m or 7d, or a time such as 2026-11-17 or 2026-11-17T06:00:00Z"
            raise refusal(f"--{key} {given!r} is no duration and no time", hint) from error

    def size(self, key: str) -> int | None:
        """The bytes of an option that is a size, such as 8g."""
        given = self.text(key)
        if given is None:
            return None
        from resile.dialects.reading.durations import memory_bytes

        try:
            return memory_bytes(given)
        except ValueError as error:
            raise refusal(f"--{key} {given!r} {error}", "such as 512m or 8g") from error

    def duration(self, key: str, *, zero: bool = False) -> float | None:
        """The seconds of an option that is a duration, such as 90m."""
        given = self.text(key)
        if given is None:
            return None
        from resile.dialects.reading.durations import duration_seconds

        try:
            return duration_seconds(given, zero=zero)
        except ValueError as error:
            raise refusal(f"--{key} {given!r} {error}", "such as 90s, 15m or 1h30m") from error

    @property
    def client(self) -> Client:
        """The client of the named server or database; it connects when a command first needs it."""
        if self._client is None:
            if self.server:
                from resile.commands.remote.client import RemoteClient
                from resile.commands.remote.connection import token_in, token_of_environment

                path = self.text("token-file")
                self._client = RemoteClient(self.server, token_in(path) if path else token_of_environment())
            else:
                from resile.commands.client import Client

                self._client = Client.at(self.database)
        return self._client

    def close(self) -> None:
        """Close the store, if a command opened it."""
        if self._client is not None:
            self._client.close()
            self._client = None

    @property
    def run(self) -> int:
        """The run that a command refers to."""
        return int(self._values["RUN"][-1])

    @property
    def server(self) -> str:
        """The server of --server, else of the configuration unless --db is given; empty for commands on a database.

        A command that has an option --server of its own knows what it means.
        """
        if any(option.key == "server" for option in self.command.options):
            return ""
        return self.text("server") or ("" if self.db else str(self.settings.values.get("server", "")))

    @property
    def db(self) -> str | None:
        """The database of --db, if it was given."""
        return self.text("db")

    @property
    def database(self) -> str | None:
        """The database of --db, else that of the configuration; None for the default one."""
        return self.db or self.settings.values.get("db")

    @property
    def json(self) -> bool:
        """Is a JSON document wanted?"""
        return "json" in self._values

    @property
    def color(self) -> str:
        """When to color the output: auto, always or never."""
        return self.text("color") or "auto"


def split(words: list[str]) -> tuple[str, list[str]]:
    """The name of the command and its words; common options may precede the name."""
    before: list[str] = []
    index = 0
    while index < len(words) and words[index].startswith("-"):
        option, value = _find(COMMON, words[index], "resile")
        before.append(words[index])
        if option.value and value is None:
            index += 1
            before += words[index : index + 1]
        index += 1
    if index == len(words):
        return "", before
    name, rest = words[index], words[index + 1 :]
    if name in FAMILIES and rest and not rest[0].startswith("-"):
        return f"{name} {rest[0]}", before + rest[1:]
    return name, before + rest


def find_command(name: str) -> Command:
    """The command of this name; raises an error that suggests a similar one."""
    command = COMMANDS_BY_NAME.get(ALIASES.get(name) or RENAMED.get(name, name))
    if command is not None:
        return command
    if name in FAMILIES:
        members = FAMILIES[name]
        raise refusal(f"`resile {name}` needs one of: {', '.join(members)}", f"resile {name} {members[0]} RUN")
    hint = ELSEWHERE.get(name) or nearest(name, COMMANDS_BY_NAME) or "`resile --help` lists the commands"
    raise refusal(f"there is no command {name!r}", hint)


def parse(command: Command, words: list[str]) -> Call:
    """The options and arguments of a command, checked against the table."""
    if command.name.startswith("events "):
        # Prodigy's way to name a run.
        words = [word.removeprefix("--job-id=") for word in words if word != "--job-id"]
    values: dict[str, list[str]] = {}
    call = Call(command, values)
    loose: list[str] = []
    more: list[tuple[Option, str]] = []
    known = command.options + COMMON
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word == "--":
            loose += words[index:]
            break
        if not word.startswith("-") or word == "-":
            loose.append(word)
            continue
        option, value = _find(known, word, f"resile {command.name}")
        if option.old and option.old == word.partition("=")[0]:
            call.renamed[option.old] = option.names[-1]
        if option.value and value is None:
            if index == len(words) or any(words[index] in other.names for other in known):
                raise refusal(f"{word} needs a value: {word} {option.value}", _help_of(command))
            value = words[index]
            index += 1
        _keep(values, option, word, value)
        while option.takes_words and index < len(words) and not words[index].startswith("-"):
            more.append((option, words[index]))
            _keep(values, option, word, words[index])
            index += 1
    wanted = sum(not argument.is_optional for argument in command.arguments)
    while more and len(loose) < wanted:
        # The last word after an option that takes several is the command's own: run --only a b FILE.
        option, last = more.pop()
        values[option.key].remove(last)
        loose.append(last)
    if "help" not in values:
        _place(command, loose, values)
    return call


def refusal(message: str, hint: str = "") -> ResileError:
    """The error of a wrong call."""
    from resile.errors import ResileError

    return ResileError("usage", message, hint=hint)


def _find(known: Iterable[Option], word: str, caller: str) -> tuple[Option, str | None]:
    """The option that a word spells, and the value after its `=`."""
    name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
    for option in known:
        if name in option.names or name == option.old:
            if equals and not option.value:
                raise refusal(f"{name} takes no value", f"`{caller} --help` shows the options")
            return option, value if equals else None
    # Compare without dashes, which would make all of them look alike.
    spellings = {spelling.lstrip("-"): spelling for option in known for spelling in option.names}
    near = closest(name.lstrip("-"), spellings, OPTION_CUTOFF)
    hint = f"did you mean {spellings[near]!r}?" if near else ""
    raise refusal(f"{caller} has no option {name}", hint or f"`{caller} --help` shows the options")


def _keep(values: dict[str, list[str]], option: Option, word: str, value: str | None) -> None:
    """Check a value and add it to the given ones."""
    if value is None:
        values[option.key] = []
        return
    name = word.partition("=")[0]
    if option.choices and value not in option.choices:
        raise refusal(f"{name} is one of {', '.join(option.choices)}, not {value!r}", nearest(value, option.choices))
    if option.kind in ("count", "whole"):
        least = 1 if option.kind == "count" else 0
        most = f" to {option.most}" if option.most < WHOLE_MAX else ""
        if not (value.isascii() and value.isdigit() and len(value) <= 18 and least <= int(value) <= option.most):
            raise refusal(f"{name} is a whole number from {least}{most}, not {value[:WHOLE_SHOWN_MAX]!r}")
    elif option.kind == "integer":
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and int(digits[:18]) <= option.most and len(digits) <= 18):
            raise refusal(f"{name} is a whole number, not {value[:WHOLE_SHOWN_MAX]!r}")
    elif option.kind == "number":
        try:
            fine = 0 < float(value) < float("inf")
        except ValueError:
            fine = False
        if not fine:
            raise refusal(f"{name} is a number above 0, not {value!r}")
    if option.many:
        values.setdefault(option.key, []).append(value)
    else:
        values[option.key] = [value]


def _place(command: Command, loose: list[str], values: dict[str, list[str]]) -> None:
    """Assign the words that are no options to the command's arguments, in order."""
    left = list(loose)
    for argument in command.arguments:
        if not left and not argument.is_optional:
            hint = RUNS_HINT if argument.kind == "run" else _help_of(command)
            raise refusal(f"`resile {command.name}` needs {argument.name}", hint)
        taken = left if argument.takes_many else left[:1]
        left = left[len(taken) :]
        for word in taken:
            _check(argument, word)
        if taken:
            values[argument.name] = taken
    if left:
        raise refusal(f"`resile {command.name}` does not take {left[0]!r}", _help_of(command))


def _check(argument: Argument, word: str) -> None:
    """Check an argument: an id is a number, a choice is one of the listed ones."""
    if argument.kind == "run" and not (word.isascii() and word.isdigit() and len(word) <= 18):
        raise refusal(f"RUN is the number of a run, not {word!r}", RUNS_HINT)
    if argument.choices and word not in argument.choices:
        hint = nearest(word, argument.choices)
        raise refusal(f"{argument.name} is one of {', '.join(argument.choices)}, not {word!r}", hint)


def _help_of(command: Command) -> str:
    return f"`resile {command.name} --help` shows its usage"


def nearest(word: str, names: Iterable[str]) -> str:
    """`did you mean …?`, or an empty text."""
    found = closest(word, names)
    return f"did you mean {found!r}?" if found else ""


def closest(word: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """The most similar name, or an empty text; `cutoff` is the least similarity, up to 1."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, names, 1, cutoff)), "")
