"""Liquid as a template language of workflows: `{{ ... }}` in texts, JavaScript in conditions.

A `${...}` in such a workflow belongs to the shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from resile.errors import shorten
from resile.languages.braces import output_pieces
from resile.languages.liquid import templates
from resile.languages.liquid.scope import LiquidScope, render_all
from resile.languages.native import BaseLanguage
from resile.languages.paths import join_path
from resile.languages.references import MISSING, is_one_reference, refuse_nul
from resile.languages.urls import check_rendered, encode_url, names_server

if TYPE_CHECKING:
    from resile.core.state import Job
    from resile.languages.braces import Write
    from resile.languages.contract import Run
    from resile.languages.liquid.javascript import LiquidCode


class LiquidNames:
    """The variables of one job's texts, computed when the first text needs them."""

    language: Liquid
    args: dict[str, Any]

    def __init__(self, run: Run, job: Job) -> None:
        self._run = run
        self._job = job
        self._variables: Mapping[str, Any] | None = None

    @property
    def variables(self) -> Mapping[str, Any]:
        """The variables."""
        # functools.cached_property would hold a lock for all jobs, even while a template among the variables waits.
        if self._variables is None:
            self._variables = LiquidScope(self._run).variables(self._job)
        return self._variables

    def __call__(self, name: str) -> Any:
        """MISSING: a `${...}` belongs to the shell."""
        del name
        return MISSING


class Liquid(BaseLanguage):
    """`{{ ... }}` and `{% ... %}` as Visor's files use them: implements the contract of languages."""

    mark = "{"
    has_references = False
    may_wait = True
    names_in = staticmethod(templates.names_in)
    check = staticmethod(templates.problem)
    visible = LiquidNames

    def check_url(self, url: str) -> tuple[str, str]:
        """Check a URL: the file must determine its server, or it begins with the output that names it."""
        if "{" not in url or is_one_reference(url):
            return super().check_url(url)
        if re.fullmatch(r"(?s)\{\{(?:(?!\}\}).)*\}\}(?:[/?#].*)?", url) or names_server(url[: url.index("{")]):
            return "", ""
        hint = "write the server out, or begin with one output: {{ url }}/path"
        return f"`{shorten(url)}`: a value can't decide on the scheme or the server of a url", hint

    def render_text(self, text: str, visible: LiquidNames) -> str:
        return refuse_nul(templates.render(text, visible.variables)) if templates.is_template(text) else text

    def render_shell(self, text: str, visible: LiquidNames, program: str = "sh") -> str:
        if not templates.is_template(text):
            return text
        return refuse_nul(templates.render_command(text, visible.variables, program))

    def render_data(self, data: Any, visible: LiquidNames) -> Any:
        return render_all(data, visible.variables)

    def render_url(self, url: str, visible: LiquidNames) -> str:
        text = templates.render_url(url, visible.variables)
        check_rendered(url, text, is_value=templates.is_one_output(url))
        return encode_url(text)

    def render_path(self, path: str, visible: LiquidNames, folder: str) -> str:
        def render(write: Write) -> str:
            return templates.render(path, visible.variables, write)

        return join_path(folder, output_pieces(path, render, templates.plain_text))

    def code(self, run: Run) -> LiquidCode:
        """JavaScript with the same names, memory and a log."""
        from resile.languages.liquid.javascript import LiquidCode

        return LiquidCode(run)


LIQUID = Liquid()
LiquidNames.language = LIQUID
LiquidNames.args = {}
