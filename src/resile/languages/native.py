"""The native language: `${...}` in texts and commands, JavaScript in conditions.

A reference whose first name the workflow knows must have a value: if its path leads nowhere, the attempt fails before
it starts; in `end` it is empty. A reference whose first name it does not know belongs to the shell and stays. In a
condition both are MISSING.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resile.languages import references
from resile.languages.references import MISSING, ValueRefused, is_one_reference, names, or_default, path_of, text_of
from resile.languages.shell.quoting import render_shell
from resile.languages.surroundings import is_of_end

if TYPE_CHECKING:
    from resile.core.state import Job
    from resile.languages.contract import Program, Run
    from resile.languages.javascript.expressions import Expressions
    from resile.languages.references import Lookup
    from resile.model.workflow import Condition, Http, Python, Query

# These names are no lists: a number in brackets after them means an array of the shell.
_OBJECTS = ("inputs", "execution", "error")
_FALSE_TEXTS = ("", "0", "false", "null")


class NativeNames:
    """The references of one job."""

    __slots__ = ("_job", "_run")

    language: Native
    args: dict[str, Any]

    def __init__(self, run: Run, job: Job) -> None:
        self._run = run
        self._job = job

    def __call__(self, name: str) -> Any:
        """The value of a reference, or MISSING; raises ValueRefused if its path leads nowhere."""
        path = path_of(name)
        value = or_default(name, self._run.find(path, self._job))
        if value is not MISSING or len(path) == 1 or (path[0] in _OBJECTS and isinstance(path[1], int)):
            return value
        from resile.languages.missing_values import problem_with

        if is_of_end(self._run.state, self._job):
            # Nothing keeps `end` from running.
            return ""
        if problem := problem_with(path, lambda part: self._run.find(part, self._job)):
            raise ValueRefused(problem)
        if owner := self._run.capturer(str(path[0]), self._job):
            raise ValueRefused(f"`{path[0]}` has no value: {owner!r} captures it and has not given one")
        return MISSING


class BaseLanguage:
    """The methods of the contract that languages have in common; here a `${...}` has no value in code."""

    def check_url(self, url: str) -> tuple[str, str]:
        """Check a URL: the file must determine its server, or it is one reference to a whole URL."""
        from resile.errors import shorten
        from resile.languages.urls import is_whole_url, names_server

        if is_one_reference(url):
            return "", ""
        if split_base(url)[0]:
            return "", ""
        first = next((offset for _, offset in names(url)), None)
        if first is not None and not names_server(url[:first]):
            hint = "write the server out, or begin with one reference and a slash: http: ${inputs.base}/path"
            return f"`{shorten(url)}`: a value can't decide on the scheme or the server of a url", hint
        if not is_whole_url(url):
            hint = "a password belongs in a header" if "@" in url else "http://host/path or https://host/path"
            return f"`{shorten(url)}` is no http url", hint
        return "", ""

    def program(self, action: Http | Python | Query, name: str, folder: str, shared: str, visible: Any) -> Program:
        from resile.languages.program_settings import program_of

        del shared
        return program_of(action, name, folder, visible)

    def condition(self, condition: Condition, run: Run, job: Job, at: float) -> tuple[bool, str]:
        """Decide one reference by its value, the word `true`, or JavaScript."""
        if condition.language != "value":
            return self.code(run).decide(condition, job, at)
        source = condition.source.strip()
        if is_one_reference(source):
            return _is_true(self._find_in_code(run, source[2:-1], job)), ""
        return source == "true", ""

    def code(self, run: Run) -> Expressions:
        from resile.languages.javascript.expressions import Expressions

        return Expressions(run, lambda name, job: self._find_in_code(run, name, job))

    def _find_in_code(self, run: Run, name: str, job: Job) -> Any:
        del run, name, job
        return MISSING


class Native(BaseLanguage):
    """`${...}`: implements the contract of languages."""

    mark = "${"
    has_references = True
    may_wait = False
    visible = NativeNames
    render_text = staticmethod(references.render_text)
    render_shell = staticmethod(render_shell)

    def names_in(self, text: str) -> frozenset[str]:
        """The references in a text, without their defaults."""
        return frozenset(references.without_default(name).removeprefix("raw:") for name, _ in names(text))

    def check(self, text: str) -> str:
        """Nothing: a text that is no reference belongs to the shell."""
        del text
        return ""

    def render_data(self, data: Any, visible: Lookup) -> Any:
        """The data with values in its texts; a text that is one reference becomes the value itself."""
        if isinstance(data, dict):
            return {key: self.render_data(value, visible) for key, value in data.items()}
        if isinstance(data, list):
            return [self.render_data(value, visible) for value in data]
        if not isinstance(data, str) or not is_one_reference(data):
            return references.render_text(data, visible) if isinstance(data, str) else data
        return _value_of(data, visible)

    def render_url(self, url: str, visible: Lookup) -> str:
        """The URL with its values; a URL that is one reference is its value."""
        from resile.languages.urls import encode_url, encode_value, is_whole_url, leaves_folder

        if is_one_reference(url):
            text = text_of(_value_of(url, visible))
            if not is_whole_url(text):
                raise ValueRefused(f"the value of `{url}` is no http url without a password")
        else:
            base, rest = split_base(url)
            text = references.render_text(rest, lambda name: encode_value(_value_of(f"${{{name}}}", visible)))
            if base:
                server = text_of(_value_of(base, visible)).removesuffix("/")
                if not is_whole_url(server) or "?" in server or "#" in server:
                    raise ValueRefused(
                        f"the value of `{base}` is no http url without a password, a query or a fragment"
                    )
                text = server + text
            if leaves_folder(url, text):
                raise ValueRefused(f"a value in `{url}` is `.` or `..`, which would lead out of its folder")
        return encode_url(text)

    def render_path(self, path: str, visible: Lookup, folder: str) -> str:
        from resile.languages.paths import join_path

        return join_path(folder, references.text_pieces(path, visible))

    def _find_in_code(self, run: Run, name: str, job: Job) -> Any:
        return or_default(name, run.find(path_of(name), job))


NATIVE = Native()
NativeNames.language = NATIVE
NativeNames.args = {}


def split_base(url: str) -> tuple[str, str]:
    """The reference that a URL begins with, up to a slash, and the rest; no reference if it begins otherwise."""
    end = url.find("}/") + 1
    is_base = end > 0 and is_one_reference(url[:end])
    return (url[:end], url[end:]) if is_base else ("", url)


def _is_true(value: Any) -> bool:
    """Is a value true? Empty, 0, false and null are false, as values and as text."""
    if isinstance(value, str):
        return value.strip() not in _FALSE_TEXTS
    return value is not MISSING and bool(value)


def _value_of(reference: str, lookup: Lookup) -> Any:
    """The value of a reference; raises ValueRefused if there is none, because no shell reads this text."""
    value = lookup(reference[2:-1])
    if value is MISSING:
        raise ValueRefused(f"nothing is known under `{reference}`")
    return value
