"""Step types that the engine runs itself, and the processing of a step's output.

    action   Script, Memory, Collect    evaluated in the sandbox; no process is started
             Log, Ask                   a text for people: printed, or a question that waits for its answer
    output   Transform -> Check, ...    the value of a step, and the conditions that it must meet

Text is stored as written; the engine renders it in the workflow's template language when an attempt starts.
"""

from typing import Any, Literal

from msgspec import Struct

MemoryOperation = Literal["get", "set", "append", "increment", "delete", "clear", "list"]
EffectKind = Literal["enter", "set", "append", "extend", "merge", "result", "again", "fail"]
LogLevel = Literal["debug", "info", "warn", "error"]


class Script(Struct, frozen=True, tag="script", omit_defaults=True):
    """JavaScript, the body of a function; its return value is the output, and it may write the run's memory."""

    code: str
    namespace: str = "default"

    def code_by_key(self) -> dict[str, str]:
        """The code of the step, for `resile check`; every action with code has this method."""
        return {"content": self.code}


class Log(Struct, frozen=True, tag="log", omit_defaults=True):
    """A message with a level; `with_outputs` adds the outputs of the steps that it needs."""

    message: str
    level: LogLevel = "info"
    with_outputs: bool = False


class Memory(Struct, frozen=True, tag="memory", omit_defaults=True):
    """One operation on the run's memory; the value is data whose texts are templates, or the result of code."""

    operation: MemoryOperation
    key: str = ""
    namespace: str = "default"
    value: Any = None
    code: str = ""

    def code_by_key(self) -> dict[str, str]:
        """The code that computes the value, if any."""
        return {"value_js": self.code} if self.code else {}


class Ask(Struct, frozen=True, tag="ask", omit_defaults=True):
    """A question for a user: the step is parked until it is answered; an empty answer means the default."""

    question: str
    default: str = ""


class Computed(Struct, frozen=True, array_like=True):
    """A name and a template for its value, or code where `code` is not empty."""

    name: str
    template: str = ""
    code: str = ""


class Collect(Struct, frozen=True, tag="collect"):
    """Values that a child workflow returns to its caller; later values can use earlier ones."""

    values: tuple[Computed, ...]

    def code_by_key(self) -> dict[str, str]:
        """The code of each value that has some."""
        return {one.name: one.code for one in self.values if one.code}


class Transform(Struct, frozen=True, omit_defaults=True):
    """Computes a step's value from an attempt's output: parse it, then apply the template, then the code.

    `parse` says how text is read: `auto` parses JSON if it is JSON, `json` requires JSON, `text` keeps the text, and
    `last` parses the last line as JSON. `as_items` makes the value a list; `schema` is a JSON schema that the value
    must meet, `schema_name` the name that code knows it by. `first` is a transform that comes before this one.
    """

    parse: Literal["auto", "json", "text", "last"] = "auto"
    template: str = ""
    code: str = ""
    as_items: bool = False
    schema: Any = None
    schema_name: str = ""
    first: "Transform | None" = None


# In place of its name, which Python would compile; see the end of workflow.py.
Transform.__annotations__["first"] = Transform | None


class Check(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A condition on a successful attempt. If it is not met the attempt fails, or only a remark is recorded.

    `must` is the required value: a `guarantee` must be true, a `fail_if` must be false. `halt` ends the whole scope.
    """

    name: str
    code: str
    must: bool
    effect: Literal["fail", "halt", "remark"] = "fail"
    message: str = ""


class Case(Struct, frozen=True, array_like=True):
    """A condition on the result of an attempt. At each event of a step the first case that holds is selected.

    After a failure only cases with `on_failure` are evaluated.
    """

    when: str
    on_failure: bool = False


class Effect(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An action at the end of an attempt: it stores a value, or changes the attempt's outcome.

    `case` is the number of the case that must hold; without one the effect applies to every success. `when` and
    `unless` are further conditions. `enter` stores a variable when the step starts; `set`, and `append`, `extend` and
    `merge`, which add to a variable, act when it ends. `result` makes the value, or the values collected under the
    name, the step's output. `again` asks for another attempt, with the changed settings in `value`; `fail` fails this
    attempt. One with `of_arc` belongs to an arc that is taken: it comes last, and no condition of an arc sees it.
    """

    kind: EffectKind
    name: str = ""
    value: Any = None
    path: str = ""
    case: int = -1
    when: str = ""
    unless: str = ""
    of_arc: bool = False


class MemoryFile(Struct, frozen=True, omit_defaults=True):
    """The file that keeps a workflow's memory between runs; relative to the caller's folder."""

    path: str
    load: bool = True
    save: bool = True
