"""Rendering by the template language of a workflow: one seam for everything that turns texts into commands.

    lookup = Values.of(job)              the names of `${...}`
    lookup = Templated(variables)        a language of its own, behind the same functions

    render_text, render_shell, render_data, render_url (text, lookup)

Whoever renders calls these four and does not ask which language it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from resile.languages import references
from resile.languages.references import MISSING
from resile.languages.shell import quoting

if TYPE_CHECKING:
    from resile.languages.references import Lookup


class Templated:
    """A lookup whose texts are Liquid templates; the variables are put together when the first text needs them."""

    def __init__(self, variables: Callable[[], Mapping[str, Any]]) -> None:
        self._make = variables
        self._made: Mapping[str, Any] | None = None

    def __call__(self, name: str) -> Any:
        """No `${...}` is ours in these texts: they belong to the shell."""
        del name
        return MISSING

    @property
    def variables(self) -> Mapping[str, Any]:
        """What the texts can name."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def text(self, text: str) -> str:
        """Plain text."""
        from resile.languages.liquid.templates import is_template, render

        return checked(render(text, self.variables)) if is_template(text) else text

    def shell(self, text: str, program: str) -> str:
        """A command."""
        from resile.languages.liquid.templates import is_template, render_command

        return checked(render_command(text, self.variables, program)) if is_template(text) else text

    def data(self, data: Any) -> Any:
        """Data with its texts rendered."""
        from resile.engine.evaluation.liquid_scope import rendered

        return rendered(data, self.variables)

    def url(self, text: str) -> str:
        """A url."""
        from resile.languages.liquid.templates import render_url

        return render_url(text, self.variables)


def checked(text: str) -> str:
    """A text that a process can be given."""
    if "\0" in text:
        raise references.ValueRefused("a value holds a NUL, which no command or environment can take")
    return text


def render_text(text: str, lookup: Lookup) -> str:
    """The text with its values, unquoted."""
    return lookup.text(text) if isinstance(lookup, Templated) else references.render_text(text, lookup)


def render_shell(text: str, lookup: Lookup, program: str = "sh") -> str:
    """The command with its values, each quoted for its place."""
    return lookup.shell(text, program) if isinstance(lookup, Templated) else quoting.render_shell(text, lookup, program)
