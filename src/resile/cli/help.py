"""The help texts, made from the table of commands: 80 columns wide, no imports, no formatting library."""

from __future__ import annotations

from resile.cli.grammar import COMMON, Command, Option
from resile.cli.table import GROUPS

WIDTH = 80


def overview() -> str:
    """The text of `resile` and `resile --help`."""
    lines = [
        "usage: resile COMMAND [options]",
        "",
        "Workflows that get back up: durable runs, and an answer for every failure.",
    ]
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:", *(f"  {command.usage:<22}  {command.summary}" for command in commands)]
    lines += [
        "",
        "Options of every command:",
        *_options(COMMON),
        "      --version             show the version",
        "",
        "`resile COMMAND --help` says more. Start with: resile run FILE",
    ]
    return "\n".join(lines) + "\n"


def command_help(command: Command) -> str:
    """The text of `resile COMMAND --help`."""
    lines = [f"usage: resile {command.usage} [options]", ""]
    lines += wrap(command.summary[0].upper() + command.summary[1:] + ".", "")
    if command.about:
        lines += ["", *wrap(command.about, "")]
    lines += ["", "Options:", *_options(command.options + COMMON)]
    lines += ["", "Examples:", *(f"  {example}" for example in command.examples)]
    lines += [
        "",
        "Exit codes:",
        *(f"  {code:>3}  {text}" for code, text in (line.split("  ", 1) for line in command.exits)),
    ]
    return "\n".join(lines) + "\n"


def wrap(text: str, indent: str) -> list[str]:
    """Break a text into lines of at most 80 columns."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and len(indent) + len(line) + 1 + len(word) > WIDTH:
            lines.append(indent + line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, indent + line] if line else lines


def _options(options: tuple[Option, ...]) -> list[str]:
    """One option on each line, with its text beside it, or below a long name."""
    lines: list[str] = []
    for option in options:
        names = ", ".join(option.names) if len(option.names) > 1 else f"    {option.names[0]}"
        left = f"  {names} {option.value}".rstrip()
        text = option.help
        if option.choices:
            text += f": {', '.join(option.choices)}"
        if option.many:
            text += "; can be given again"
        right = wrap(text, " " * 28)
        if len(left) < 27:
            lines += [f"{left:<28}{right[0].lstrip()}", *right[1:]]
        else:
            lines += [left, *right]
    return lines
