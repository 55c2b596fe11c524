"""`completion`: scripts for bash, zsh and fish, made from the table of commands.

All three complete commands, options, the values that are spelled out, files and folders. Runs, and in bash the steps
of a run, are asked of `resile status` when somebody completes one.
"""

from __future__ import annotations

from resile.cli.display.output import quoted, write_text
from resile.cli.grammar import COMMON, Argument, Command, Option
from resile.cli.parse import Call
from resile.cli.table import COMMANDS, FAMILIES
from resile.commands.events.names import EVENT_TYPES

# The first column of the list of runs, below its heading.
_RUN_IDS = r"resile status --color never 2>/dev/null | sed -n '2,$s/^\([0-9]*\).*/\1/p'"

# The first column of the table of a run's jobs, wide enough that no name is cut.
_STEP_NAMES = r"""COLUMNS=1000 resile status "$run" --color never 2>/dev/null | sed '1,/^STEP /d; s/  .*//'"""

_BASH = """\
# bash completion for resile: eval "$(resile completion bash)"
_resile() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= place=0 run= index
    COMPREPLY=()
    for ((index = 1; index < COMP_CWORD; index++)); do
        case ${COMP_WORDS[index]} in
            @VALUED@) ((index++)) ;;
            -*) ;;
            *) if [[ -z $command || $command == @(@FAMILIES@) ]]; then
                   command=${command:+$command }${COMP_WORDS[index]}
               else
                   ((place++))
                   run=${run:-${COMP_WORDS[index]}}
               fi ;;
        esac
    done
    case $command:$previous in
@VALUES@
    esac
    if [[ $current == -* ]]; then
        case $command in
@OPTIONS@
        esac
        return
    fi
    case $command:$place in
        :*) COMPREPLY=($(compgen -W '@COMMANDS@' -- "$current")) ;;
@MEMBERS@
@ARGUMENTS@
    esac
}
complete -o filenames -F _resile resile
"""

_ZSH = """\
#compdef resile
# zsh completion for resile: eval "$(resile completion zsh)", after compinit
_resile_runs() {
    local -a runs
    runs=(${(f)"$(@RUNS@)"})
    compadd -a runs
}
_resile() {
    local curcontext=$curcontext state line
    local -a commands
    local -A families
    commands=(
@COMMANDS@
    )
    families=(@FAMILIES@)
    _arguments -C @COMMON@ '1:command:->command' '*::argument:->argument'
    case $state in
        command) _describe command commands ;;
        argument)
            local command=$words[1]
            if [[ -n $families[$command] ]]; then
                if (( CURRENT == 2 )); then
                    compadd ${=families[$command]}
                    return
                fi
                command="$command $words[2]"
                shift words
                (( CURRENT-- ))
            fi
            case $command in
@ARGUMENTS@
            esac ;;
    esac
}
compdef _resile resile
"""


def completion(call: Call) -> int:
    """Print the script of one shell."""
    scripts = {"bash": bash, "zsh": zsh, "fish": fish}
    write_text(scripts[call.texts("SHELL")[0]]())
    return 0


def _top_words() -> list[str]:
    """What may follow `resile` directly."""
    return list(dict.fromkeys([command.name.split()[0] for command in COMMANDS] + ["help"]))


def _choices(option: Option) -> tuple[str, ...]:
    """The values that can be spelled out."""
    return EVENT_TYPES if option.key == "type" else option.choices


def bash() -> str:
    """The script for bash."""
    valued = {name: None for option in COMMON if option.value for name in option.names}
    values = [_bash_value("*", option) for option in COMMON if option.value]
    options: list[str] = []
    places: list[str] = []
    for command in COMMANDS:
        own = [option for option in command.options if option.value]
        valued |= {name: None for option in own for name in option.names}
        values += [_bash_value(f"'{command.name}'", option) for option in own]
        names = " ".join(name for option in command.options + COMMON for name in option.names)
        options.append(f"            '{command.name}') COMPREPLY=($(compgen -W '{names}' -- \"$current\")) ;;")
        for place, argument in enumerate(command.arguments):
            words = _bash_words(argument.kind, argument.choices)
            if words:
                where = "*" if argument.count == "+" else str(place)
                places.append(f"        '{command.name}':{where}) {words};;")
    names = " ".join(name for option in COMMON for name in option.names)
    options.append(f"            *) COMPREPLY=($(compgen -W '{names} --version' -- \"$current\")) ;;")
    members = [
        f"        {family}:*) COMPREPLY=($(compgen -W '{' '.join(seconds)}' -- \"$current\")) ;;"
        for family, seconds in FAMILIES.items()
    ]
    filled = _BASH.replace("@VALUED@", "|".join(valued)).replace("@FAMILIES@", "|".join(FAMILIES))
    filled = filled.replace("@MEMBERS@", "\n".join(members))
    filled = filled.replace("@VALUES@", "\n".join(values)).replace("@OPTIONS@", "\n".join(options))
    return filled.replace("@COMMANDS@", " ".join(_top_words())).replace("@ARGUMENTS@", "\n".join(places))


def _bash_value(command: str, option: Option) -> str:
    """What completes the value of an option, which may mean another thing in another command."""
    names = "|".join(f"{command}:{name}" for name in option.names)
    return f"        {names}) {_bash_words(option.kind, _choices(option))}return ;;"


def _bash_words(kind: str, choices: tuple[str, ...]) -> str:
    """A statement that offers the values of one kind, or nothing."""
    if choices:
        return f"COMPREPLY=($(compgen -W '{' '.join(choices)}' -- \"$current\")); "
    match kind:
        case "file":
            return 'COMPREPLY=($(compgen -f -- "$current")); '
        case "folder":
            return 'COMPREPLY=($(compgen -d -- "$current")); '
        case "run":
            return f'COMPREPLY=($(compgen -W "$({_RUN_IDS})" -- "$current")); '
        case "step":
            return f'local IFS=$\'\\n\'; COMPREPLY=($(compgen -W "$({_STEP_NAMES})" -- "$current")); '
        case _:
            return ""


def zsh() -> str:
    """The script for zsh."""
    summaries = {command.name.split()[0]: command.summary for command in COMMANDS}
    summaries |= {family: f"one of: {', '.join(seconds)}" for family, seconds in FAMILIES.items()}
    summaries["help"] = "show the help of a command"
    commands = [f"        {quoted(f'{name}:{summary}')}" for name, summary in summaries.items()]
    arguments = []
    for command in COMMANDS:
        specs = [spec for option in command.options + COMMON for spec in _zsh_option(option)]
        specs += [_zsh_argument(place, argument) for place, argument in enumerate(command.arguments, 1)]
        arguments.append(f"                '{command.name}') _arguments {' '.join(specs)} ;;")
    common = " ".join(spec for option in COMMON for spec in _zsh_option(option))
    families = " ".join(f"{family} {quoted(' '.join(seconds))}" for family, seconds in FAMILIES.items())
    filled = _ZSH.replace("@RUNS@", _RUN_IDS).replace("@COMMANDS@", "\n".join(commands))
    filled = filled.replace("@FAMILIES@", families)
    return filled.replace("@COMMON@", common).replace("@ARGUMENTS@", "\n".join(arguments))


def _zsh_option(option: Option) -> list[str]:
    """An option as `_arguments` reads it, once for each spelling."""
    text = option.help.replace("[", "(").replace("]", ")").replace(":", ",")
    value = f":{option.value}:{_zsh_action(option.kind, _choices(option))}" if option.value else ""
    many = "*" if option.many else ""
    return [quoted(f"{many}{name}[{text}]{value}") for name in option.names]


def _zsh_argument(place: int, argument: Argument) -> str:
    """An argument as `_arguments` reads it."""
    where = {"1": f"{place}:", "?": f"{place}::", "+": "*:"}[argument.count]
    return quoted(f"{where}{argument.name}:{_zsh_action(argument.kind, argument.choices)}")


def _zsh_action(kind: str, choices: tuple[str, ...]) -> str:
    """What completes a value."""
    if choices:
        return f"({' '.join(choices)})"
    return {"file": "_files", "folder": "_files -/", "run": "_resile_runs"}.get(kind, "")


def fish() -> str:
    """The script for fish."""
    lines = ["# fish completion for resile: resile completion fish | source", "complete -c resile -f"]
    seen: set[str] = set()
    for command in COMMANDS:
        name, _, second = command.name.partition(" ")
        summary = f"one of: {', '.join(FAMILIES[name])}" if second else command.summary
        if name not in seen:
            seen.add(name)
            lines.append(f"complete -c resile -n __fish_use_subcommand -a {name} -d {quoted(summary)}")
        if second:
            seconds = " ".join(FAMILIES[name])
            only = f"__fish_seen_subcommand_from {name}; and not __fish_seen_subcommand_from {seconds}"
            lines.append(f"complete -c resile -n {quoted(only)} -a {second} -d {quoted(command.summary)}")
        lines += _fish_command(command)
    lines.append("complete -c resile -n __fish_use_subcommand -l version -d 'show the version'")
    lines += [f"complete -c resile {_fish_option(option)}" for option in COMMON]
    return "\n".join(lines) + "\n"


def _fish_command(command: Command) -> list[str]:
    """The options and arguments of one command."""
    conditions = [f"__fish_seen_subcommand_from {word}" for word in command.name.split()]
    prefix = f"complete -c resile -n {quoted('; and '.join(conditions))}"
    lines = [f"{prefix} {_fish_option(option)}" for option in command.options]
    for argument in command.arguments:
        if argument.choices:
            lines.append(f"{prefix} -a {quoted(' '.join(argument.choices))}")
        elif argument.kind == "file":
            lines.append(f"{prefix} -F")
        elif argument.kind == "run":
            lines.append(f"{prefix} -a {quoted('(' + _RUN_IDS + ')')}")
    return lines


def _fish_option(option: Option) -> str:
    """An option as `complete` reads it."""
    parts = [f"-s {name[1:]}" if len(name) == 2 else f"-l {name[2:]}" for name in option.names]
    choices = _choices(option)
    if choices:
        parts.append(f"-x -a {quoted(' '.join(choices))}")
    elif option.value:
        parts.append("-r -F" if option.kind in ("file", "folder") else "-x")
    return " ".join([*parts, "-d", quoted(option.help)])
