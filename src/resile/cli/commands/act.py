"""`cancel` and `reset`: the commands that change a run without driving it."""

from __future__ import annotations

from resile.cli.commands.run import display_for
from resile.cli.display.output import command_hint, plural, print_document, stdout_reserved_for_json, write_text
from resile.cli.display.watch import ProgressWatcher
from resile.cli.parse import Call


def cancel(call: Call) -> int:
    """Cancel a run through its engine; if no engine drives it, end it here."""
    with stdout_reserved_for_json(call.json), ProgressWatcher(display_for(call)) as watch:
        answer = call.client.cancel(call.run, call.text("reason") or "", watch)
    if call.json:
        print_document(answer)
    elif answer.requested:
        follow = command_hint(f"events follow {call.run}", call.db)
        write_text(f"run {call.run}: its engine was asked to cancel it; `{follow}` shows how it goes\n")
    else:
        write_text(f"run {call.run} is {answer.status}\n")
    return 0


def reset(call: Call) -> int:
    """Reset steps, so that they run again."""
    answer = call.client.reset(call.run, failed_only=call.flag("failed-only"))
    if call.json:
        print_document(answer)
    else:
        go_on = command_hint(f"resume {call.run}", call.db)
        write_text(f"run {call.run}: {plural(answer.reset, 'step')} reset; `{go_on}` runs them\n")
    return 0
