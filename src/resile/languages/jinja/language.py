"""Jinja as a template language of workflows: `{{ ... }}` in texts and in conditions.

A `${...}` in such a workflow belongs to the shell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resile.languages.jinja import templates
from resile.languages.jinja.scope import JinjaNames
from resile.languages.jinja.step_events import StepEvents
from resile.languages.native import check_written_url, value_holds
from resile.languages.references import MISSING, is_one_reference, refuse_nul
from resile.languages.urls import check_rendered, encode_url

if TYPE_CHECKING:
    from resile.core.state import Job
    from resile.languages.contract import Program, Run
    from resile.languages.javascript.expressions import Expressions
    from resile.model.workflow import Condition, Http, Python, Query


class Jinja:
    """`{{ ... }}` and `{% ... %}` as NoETL's playbooks use them."""

    mark = "{"
    has_references = False

    def names_in(self, text: str) -> frozenset[str]:
        """The names that a text uses; none if it has a syntax error."""
        return templates.names_in(text)

    def check(self, text: str) -> str:
        """Why the template could never be rendered."""
        return templates.problem(text)

    def check_url(self, url: str) -> tuple[str, str]:
        """Check a URL without templates; a playbook may take its server from values, so `render_url` checks those."""
        return ("", "") if "{" in url or is_one_reference(url) else check_written_url(url)

    def visible(self, run: Run, job: Job) -> JinjaNames:
        """The names and values that the texts of a job can use."""
        return StepEvents(run).names(job)

    def render_text(self, text: str, visible: JinjaNames) -> str:
        """The text with its values."""
        return refuse_nul(templates.render(text, visible.find))

    def render_shell(self, text: str, visible: JinjaNames, program: str = "sh") -> str:
        """The command with its values, each quoted for its position."""
        return refuse_nul(templates.render_command(text, visible.find, program))

    def render_data(self, data: Any, visible: JinjaNames) -> Any:
        """The data with its texts rendered."""
        return templates.render_data(data, visible.find)

    def render_url(self, url: str, visible: JinjaNames) -> str:
        """The URL with its values; one that the previous attempt asked for is already rendered."""
        is_data = url == str(visible.scope.repeat_settings(visible.job).get("url", ""))
        text = url.strip() if is_data else templates.render_url(url, visible.find)
        check_rendered(url, text, is_value=templates.is_one_output(url))
        return encode_url(text)

    def program(
        self, action: Http | Python | Query, name: str, folder: str, shared: str, visible: JinjaNames
    ) -> Program:
        """The program of a tool."""
        from resile.languages.jinja.tools import tool_program

        return tool_program(action, name, folder, shared, visible)

    def condition(self, condition: Condition, run: Run, job: Job, at: float) -> tuple[bool, str]:
        """Decide a template, or the number of a case that held."""
        if condition.language in ("jinja", "case"):
            return StepEvents(run).holds(condition, job)
        if condition.language != "value":
            return self.code(run).decide(condition, job, at)
        return value_holds(condition.source, lambda _: MISSING), ""

    def code(self, run: Run) -> Expressions:
        """JavaScript, in which a `${...}` is no reference."""
        from resile.languages.javascript.expressions import Expressions

        return Expressions(run, lambda _name, _job: MISSING)


JINJA = Jinja()
JinjaNames.language = JINJA
