"""Shell completion: `completion SHELL` prints a shim, which calls the hidden command `__complete` for the candidates.

    resile __complete -- WORD...     the words after `resile`, including the one to complete, which may be empty

The first line of the output is `words`, `files` or `folders`. After `words`, each line has a candidate and, behind a
tab, its description; otherwise the shell itself completes a file or a folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from resile.cli.display.output import escape, write_text
from resile.cli.grammar import COMMON, Argument, Command, Option
from resile.cli.parse import Call
from resile.cli.table import ALIASES, COMMANDS, COMMANDS_BY_NAME, FAMILIES, RENAMED
from resile.model.nested import step_name

SHIMS = {
    "bash": r"""# bash completion for resile: eval "$(resile completion bash)"
_resile() {
    local -a lines
    local current=${COMP_WORDS[COMP_CWORD]}
    mapfile -t lines < <(resile __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    COMPREPLY=()
    case ${lines[0]} in
        files) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
        folders) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
        *) COMPREPLY=("${lines[@]:1}"); COMPREPLY=("${COMPREPLY[@]%%$'\t'*}") ;;
    esac
}
complete -o filenames -F _resile resile
""",
    "zsh": r"""#compdef resile
# zsh completion for resile: eval "$(resile completion zsh)", after compinit
_resile() {
    local -a lines names shown
    lines=("${(@f)$(resile __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    case $lines[1] in
        files) _files ;;
        folders) _files -/ ;;
        *)
            shift lines
            (( $#lines )) || return 1
            names=("${(@)lines%%$'\t'*}")
            shown=("${(@)lines//$'\t'/  -- }")
            compadd -l -d shown -a names ;;
    esac
}
compdef _resile resile
""",
    "fish": r"""# fish completion for resile: resile completion fish | source
function __resile_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines (resile __complete -- $words[2..-1] "$current" 2>/dev/null)
    switch "$lines[1]"
        case files
            __fish_complete_path "$current"
        case folders
            __fish_complete_directories "$current"
        case '*'
            printf '%s\n' $lines[2..-1]
    end
end
complete -c resile -f -a '(__resile_complete)'
""",
}

# A candidate and its description.
Candidate = tuple[str, str]


def completion(call: Call) -> int:
    """Print the shim of one shell."""
    write_text(SHIMS[call.word("SHELL")])
    return 0


def answer(words: list[str]) -> str:
    """The lines that `__complete` prints for the words after `resile`."""
    *before, current = words or [""]
    line = _Line(before)
    pending = line.pending
    if pending is not None:
        return _values(line, current, pending.kind, _choices(pending))
    if current.startswith("-"):
        return _list_candidates(current, line.options())
    if line.command is None:
        return _list_candidates(current, line.commands())
    argument = line.argument()
    return "words\n" if argument is None else _values(line, current, argument.kind, argument.choices)


class _Line:
    """The words before the one to complete: the command, the options, the arguments."""

    def __init__(self, words: list[str]) -> None:
        self.family = ""
        self.command: Command | None = None
        self.pending: Option | None = None
        self.arguments: list[str] = []
        self.db: str | None = None
        for word in words:
            self._add(word)

    def _add(self, word: str) -> None:
        """Parse one word."""
        if self.pending is not None:
            self.db = word if self.pending.key == "db" else self.db
            self.pending = None
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            known = COMMON if self.command is None else self.command.options + COMMON
            found = next((option for option in known if name in option.names or name == option.old), None)
            if found is not None and found.key == "db" and equals:
                self.db = value
            self.pending = found if found is not None and found.value and not equals else None
        elif self.command is not None:
            self.arguments.append(word)
        elif word in FAMILIES and not self.family:
            self.family = word
        else:
            name = f"{self.family} {word}".lstrip()
            self.command = COMMANDS_BY_NAME.get(ALIASES.get(name) or RENAMED.get(name, name))

    def commands(self) -> Iterator[Candidate]:
        """The commands that may follow: those of the family, or all first words."""
        if self.family:
            for member in FAMILIES[self.family]:
                yield member, COMMANDS_BY_NAME[f"{self.family} {member}"].summary
            return
        for name in dict.fromkeys(command.name.split()[0] for command in COMMANDS):
            members = FAMILIES.get(name)
            yield name, f"one of: {', '.join(members)}" if members else COMMANDS_BY_NAME[name].summary
        yield "help", "show the help of a command"

    def options(self) -> Iterator[Candidate]:
        """The options that may follow."""
        for option in (self.command.options if self.command is not None else ()) + COMMON:
            for name in option.names:
                yield name, option.help
        if self.command is None:
            yield "--version", "show the version"

    def argument(self) -> Argument | None:
        """The argument that the next word would be."""
        assert self.command is not None
        known = self.command.arguments
        if known and known[-1].takes_many:
            return known[min(len(self.arguments), len(known) - 1)]
        return known[len(self.arguments)] if len(self.arguments) < len(known) else None


def _choices(option: Option) -> tuple[str, ...]:
    """The possible values of an option, if they are a fixed set."""
    if option.kind != "event":
        return option.choices
    from resile.commands.events.names import EVENT_TYPES

    return EVENT_TYPES


def _values(line: _Line, current: str, kind: str, choices: tuple[str, ...]) -> str:
    """Complete a value of one kind."""
    if choices:
        return _list_candidates(current, ((choice, "") for choice in choices))
    match kind:
        case "file":
            return "files\n"
        case "folder":
            return "folders\n"
        case "run" | "step":
            return _list_candidates(current, _candidates_from_store(line, kind))
        case _:
            return "words\n"


def _candidates_from_store(line: _Line, kind: str) -> list[Candidate]:
    """The runs of the database, or the steps of the named run; none if they can't be read."""
    from resile.cli.settings import load_settings
    from resile.commands.client import Client
    from resile.errors import ResileError

    try:
        db = line.db or load_settings().values.get("db")
    except ResileError:
        return []
    with Client.at(db) as client:
        try:
            if kind == "run":
                return [(str(run.run), f"{escape(run.workflow)}, {run.status}") for run in client.runs().runs]
            jobs = client.status(int(line.arguments[0])).jobs
        except (ResileError, ValueError, OSError):
            return []
    return [(name, "") for name in dict.fromkeys(step_name(job.scope, job.step) for job in jobs)]


def _list_candidates(current: str, candidates: Iterable[Candidate]) -> str:
    """The candidates that begin with the current word."""
    lines = ["words"]
    for name, about in candidates:
        if name.startswith(current) and name.isprintable():
            lines.append(f"{name}\t{about}" if about else name)
    return "\n".join(lines) + "\n"
