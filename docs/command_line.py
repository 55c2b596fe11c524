"""The sections of cli.md: every command with its options, examples and exit codes, from the table of commands."""

from __future__ import annotations

from resile.cli.grammar import COMMON, Command, Option
from resile.cli.table import ALIASES, GROUPS


def command_sections() -> list[str]:
    """An overview by group, the options of every command, then a section for each command."""
    lines = ["| command | what it does |", "|---|---|"]
    for commands in GROUPS.values():
        lines += [
            f"| [`{cell(command.usage)}`](#{anchor_of(command)}) | {cell(command.summary)} |" for command in commands
        ]
    lines += ["", "Every command takes these options, before or after its name:", "", *option_table(COMMON), ""]
    lines += ["Short forms: " + ", ".join(f"`{short}` for `{long}`" for short, long in ALIASES.items()) + "."]
    for group, commands in GROUPS.items():
        lines += ["", f"## {group}"]
        for command in commands:
            lines += ["", *section_of(command)]
    return lines


def section_of(command: Command) -> list[str]:
    """What `resile COMMAND --help` says, as a section of the page."""
    summary = command.summary[:1].upper() + command.summary[1:] + "."
    lines = [f"### {command.name}", "", "```text", f"resile {command.usage} [options]", "```", "", summary]
    if command.about:
        lines[-1] += f" {command.about}"
    if command.options:
        lines += ["", *option_table(command.options)]
    if command.examples:
        lines += ["", "```sh", *command.examples, "```"]
    if command.exits:
        codes = (line.split("  ", 1) for line in command.exits)
        lines += ["", "| exit code | when |", "|---|---|", *(f"| {code} | {cell(text)} |" for code, text in codes)]
    return lines


def option_table(options: tuple[Option, ...]) -> list[str]:
    """A row for each option."""
    rows = ["| option | meaning |", "|---|---|"]
    for option in options:
        names = ", ".join(f"`{name} {option.value}`" if option.value else f"`{name}`" for name in option.names)
        text = option.help
        if option.choices:
            text += ": " + ", ".join(f"`{choice}`" for choice in option.choices)
        if option.many:
            text += "; can be given more than once"
        rows.append(f"| {names} | {cell(text)} |")
    return rows


def anchor_of(command: Command) -> str:
    """The anchor of the command's heading."""
    return command.name.replace(" ", "-")


def cell(text: str) -> str:
    """Escape text for a cell of a table."""
    return text.replace("|", "\\|")
