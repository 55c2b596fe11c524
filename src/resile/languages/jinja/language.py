"""Jinja as a template language of workflows: `{{ ... }}` in texts and in conditions.

A `${...}` in such a workflow belongs to the shell.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from resile.languages.braces import output_pieces
from resile.languages.jinja import templates
from resile.languages.jinja.plain_values import IN_END, plain_text
from resile.languages.jinja.scope import JinjaNames
from resile.languages.jinja.step_events import StepEvents
from resile.languages.native import BaseLanguage
from resile.languages.paths import join_path
from resile.languages.references import refuse_nul
from resile.languages.urls import check_rendered, encode_url

if TYPE_CHECKING:
    from resile.core.state import Job
    from resile.languages.braces import Write
    from resile.languages.contract import Program, Run
    from resile.model.workflow import Condition, Http, Python, Query


@contextmanager
def _lenient_in_end(visible: JinjaNames) -> Iterator[None]:
    """Render names without a value as empty if the job belongs to `end`."""
    before = IN_END.set(IN_END.get() or visible.serves_end)
    try:
        yield
    finally:
        IN_END.reset(before)


class Jinja(BaseLanguage):
    """`{{ ... }}` and `{% ... %}` as NoETL's playbooks use them: implements the contract of languages."""

    mark = "{"
    has_references = False
    may_wait = True
    names_in = staticmethod(templates.names_in)
    check = staticmethod(templates.problem)

    def check_url(self, url: str) -> tuple[str, str]:
        """Check a URL without templates; a playbook may take its server from values, so `render_url` checks those."""
        return ("", "") if "{" in url else super().check_url(url)

    def visible(self, run: Run, job: Job) -> JinjaNames:
        return StepEvents(run).names(job)

    def render_text(self, text: str, visible: JinjaNames) -> str:
        with _lenient_in_end(visible):
            return refuse_nul(templates.render(text, visible.find))

    def render_shell(self, text: str, visible: JinjaNames, program: str = "sh") -> str:
        with _lenient_in_end(visible):
            return refuse_nul(templates.render_command(text, visible.find, program))

    def render_data(self, data: Any, visible: JinjaNames) -> Any:
        with _lenient_in_end(visible):
            return templates.render_data(data, visible.find)

    def render_url(self, url: str, visible: JinjaNames) -> str:
        """The URL with its values; a URL that the previous attempt set is already rendered."""
        is_data = url == str(visible.scope.repeat_settings(visible.job).get("url", ""))
        with _lenient_in_end(visible):
            text = url.strip() if is_data else templates.render_url(url, visible.find)
        check_rendered(url, text, is_value=templates.is_one_output(url))
        return encode_url(text)

    def render_path(self, path: str, visible: JinjaNames, folder: str) -> str:
        def render(write: Write) -> str:
            return templates.render(path, visible.find, write)

        with _lenient_in_end(visible):
            return join_path(folder, output_pieces(path, render, plain_text))

    def program(
        self, action: Http | Python | Query, name: str, folder: str, shared: str, visible: JinjaNames
    ) -> Program:
        from resile.languages.jinja.tools import tool_program

        with _lenient_in_end(visible):
            return tool_program(action, name, folder, shared, visible)

    def condition(self, condition: Condition, run: Run, job: Job, at: float) -> tuple[bool, str]:
        """Decide a template, or the number of a case that held."""
        if condition.language in ("jinja", "case"):
            return StepEvents(run).holds(condition, job)
        return super().condition(condition, run, job, at)


JINJA = Jinja()
JinjaNames.language = JINJA
