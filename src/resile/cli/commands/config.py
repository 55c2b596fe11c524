"""`config`: every value of the configuration, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator

from resile.cli.display.output import Page, answer, escape
from resile.cli.parse import Call
from resile.cli.settings import EXECUTOR, KEYS
from resile.commands.documents.answers import Configuration, ConfigValue
from resile.engine.resources import measure
from resile.model.workflow import Agent
from resile.store.open import default_output, default_path


def config(call: Call) -> int:
    """Print the values: of flags, variables, files, or the defaults."""
    return answer(call, Configuration(values=[_value(call, key) for key in KEYS]), _lines)


def _value(call: Call, key: str) -> ConfigValue:
    """One value with its source."""
    option = key.replace("_", "-")
    if call.flag(option):
        return ConfigValue(key, call.whole(option) or 0 if key == "max_parallel" else call.word(option), "flag")
    if key in call.settings.values:
        return ConfigValue(key, call.settings.values[key], call.settings.sources[key])
    match key:
        case "db":
            return ConfigValue(key, default_path(), "default")
        case "output":
            return ConfigValue(key, default_output(call.database), "default")
        case "server":
            return ConfigValue(key, "", "default")
        case "max_parallel":
            return ConfigValue(key, measure(None, None, None, None).parallel, "default")
        case "agent":
            return ConfigValue(key, " ".join(Agent("").command), "default")
        case _:
            return ConfigValue(key, EXECUTOR, "default")


def _lines(document: Configuration, page: Page) -> Iterator[str]:
    """A line for each value."""
    rows = [[found.key, escape(str(found.value)) or "-", escape(found.source)] for found in document.values]
    sizes = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for key, value, source in rows:
        yield f"{key:<{sizes[0]}} = {value:<{sizes[1]}}  {page.paint('dim', source)}"
