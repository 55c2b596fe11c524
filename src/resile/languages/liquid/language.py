"""Liquid as a template language of workflows: `{{ ... }}` in texts, JavaScript in conditions.

A `${...}` in such a workflow belongs to the shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from resile.errors import shorten
from resile.languages.liquid import templates
from resile.languages.liquid.scope import LiquidScope, render_all
from resile.languages.native import check_written_url, value_holds
from resile.languages.references import MISSING, is_one_reference, refuse_nul
from resile.languages.urls import check_rendered, encode_url, names_server

if TYPE_CHECKING:
    from resile.core.state import Job
    from resile.languages.contract import Program, Run
    from resile.languages.liquid.javascript import LiquidCode
    from resile.model.workflow import Condition, Http, Python, Query


class LiquidNames:
    """The variables of one job's texts, computed when the first text needs them."""

    language: Liquid
    args: dict[str, Any]

    def __init__(self, run: Run, job: Job) -> None:
        self._run = run
        self._job = job

    @cached_property
    def variables(self) -> Mapping[str, Any]:
        """The variables."""
        return LiquidScope(self._run).variables(self._job)

    def __call__(self, name: str) -> Any:
        """MISSING: a `${...}` belongs to the shell."""
        del name
        return MISSING


class Liquid:
    """`{{ ... }}` and `{% ... %}` as Visor's files use them."""

    mark = "{"
    has_references = False

    def names_in(self, text: str) -> frozenset[str]:
        """The variables that a text uses; none if it has a syntax error."""
        return templates.names_in(text)

    def check(self, text: str) -> str:
        """Why the template could never be rendered."""
        return templates.problem(text)

    def check_url(self, url: str) -> tuple[str, str]:
        """Check a URL: the file must determine its server, or it begins with the output that names it."""
        if is_one_reference(url):
            return "", ""
        if "{" not in url:
            return check_written_url(url)
        if re.fullmatch(r"(?s)\{\{(?:(?!\}\}).)*\}\}(?:[/?#].*)?", url) or names_server(url[: url.index("{")]):
            return "", ""
        hint = "write the server out, or begin with one output: {{ url }}/path"
        return f"`{shorten(url)}`: a value can't decide on the scheme or the server of a url", hint

    def visible(self, run: Run, job: Job) -> LiquidNames:
        """The variables of a job."""
        return LiquidNames(run, job)

    def render_text(self, text: str, visible: LiquidNames) -> str:
        """The text with its values."""
        return refuse_nul(templates.render(text, visible.variables)) if templates.is_template(text) else text

    def render_shell(self, text: str, visible: LiquidNames, program: str = "sh") -> str:
        """The command with its values, each quoted for its position."""
        if not templates.is_template(text):
            return text
        return refuse_nul(templates.render_command(text, visible.variables, program))

    def render_data(self, data: Any, visible: LiquidNames) -> Any:
        """The data with its texts rendered."""
        return render_all(data, visible.variables)

    def render_url(self, url: str, visible: LiquidNames) -> str:
        """The url with its values."""
        text = templates.render_url(url, visible.variables)
        check_rendered(url, text, is_value=templates.is_one_output(url))
        return encode_url(text)

    def program(
        self, action: Http | Python | Query, name: str, folder: str, shared: str, visible: LiquidNames
    ) -> Program:
        """The program of a request, or of Python code."""
        from resile.languages.program_settings import program_of

        del shared
        return program_of(action, name, folder, visible)

    def condition(self, condition: Condition, run: Run, job: Job, at: float) -> tuple[bool, str]:
        """Decide JavaScript, or a literal."""
        if condition.language != "value":
            return self.code(run).decide(condition, job, at)
        return value_holds(condition.source, lambda _: MISSING), ""

    def code(self, run: Run) -> LiquidCode:
        """JavaScript with the same names, memory and a log."""
        from resile.languages.liquid.javascript import LiquidCode

        return LiquidCode(run)


LIQUID = Liquid()
LiquidNames.language = LIQUID
LiquidNames.args = {}
