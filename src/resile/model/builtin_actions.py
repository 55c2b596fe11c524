"""Steps that run inside the engine, and what becomes of a step's output: code, templates, memory, questions, checks.

    action   Script, Memory, Collect    evaluated in the sandbox; no process is started
             Log, Ask                   a text for people: printed, or a question that waits for its answer
    output   Transform -> Check, ...    the value of a step, and the conditions that it must meet

Text is kept as written: it is rendered in the template language of the workflow when an attempt starts.
"""

from typing import Any, Literal

from msgspec import Struct

MemoryOperation = Literal["get", "set", "append", "increment", "delete", "clear", "list"]
EffectKind = Literal["enter", "set", "append", "extend", "merge", "result", "again", "fail"]
LogLevel = Literal["debug", "info", "warn", "error"]


class Script(Struct, frozen=True, tag="script", omit_defaults=True):
    """JavaScript, the inside of a function; what it returns is the output, and it may write the run's memory."""

    code: str
    namespace: str = "default"


class Log(Struct, frozen=True, tag="log", omit_defaults=True):
    """A message, with its level before it; `with_outputs` adds what the steps gave that it needs."""

    message: str
    level: LogLevel = "info"
    with_outputs: bool = False


class Memory(Struct, frozen=True, tag="memory", omit_defaults=True):
    """One operation on the run's memory; the value is data whose texts are templates, or what code gives."""

    operation: MemoryOperation
    key: str = ""
    namespace: str = "default"
    value: Any = None
    code: str = ""


class Ask(Struct, frozen=True, tag="ask", omit_defaults=True):
    """A question for a person: the step is parked until a person answers; an empty answer means the default."""

    question: str
    default: str = ""


class Computed(Struct, frozen=True, array_like=True):
    """A name and how its value is found: a template, or code where there is some."""

    name: str
    template: str = ""
    code: str = ""


class Collect(Struct, frozen=True, tag="collect"):
    """Values of their own that a workflow gives to its caller; later ones see earlier ones."""

    values: tuple[Computed, ...]


class Transform(Struct, frozen=True, omit_defaults=True):
    """From what an attempt printed to the step's value: JSON where it is that, then the template, then the code.

    `parse` says what is made of text: `auto` takes JSON where it is JSON, `json` insists on it, `text` leaves it, and
    `last` takes the last line, which is JSON.
    `as_items` makes a list of whatever is there; `schema` is a JSON schema that the value must meet.
    """

    parse: Literal["auto", "json", "text", "last"] = "auto"
    template: str = ""
    code: str = ""
    as_items: bool = False
    schema: Any = None


class Check(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A condition on an attempt that went well. Where it is not met the attempt fails, or only a remark is kept.

    `must` is the answer that is wanted: a `guarantee` must hold, a `fail_if` must not. `halt` ends the whole scope.
    """

    name: str
    code: str
    must: bool
    effect: Literal["fail", "halt", "remark"] = "fail"
    message: str = ""


class Case(Struct, frozen=True, array_like=True):
    """A condition on what became of an attempt. At each event of a step the first that holds is the one that counts.

    Only one that answers failures is asked `on_failure`.
    """

    when: str
    on_failure: bool = False


class Effect(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What follows when an attempt has ended: a value is kept, or the attempt is judged anew.

    `case` is the number of the case that must have come true; without one the effect follows every success. `when` and
    `unless` are further conditions. `enter` keeps a variable when the step starts, `set` and the three that add to what
    is there when it is over. `result` makes the value, or what was collected under the name, the step's own. `again`
    asks for one more attempt, for which `value` has the settings that are other; `fail` fails this one.
    """

    kind: EffectKind
    name: str = ""
    value: Any = None
    path: str = ""
    case: int = -1
    when: str = ""
    unless: str = ""


class MemoryFile(Struct, frozen=True, omit_defaults=True):
    """The file in which a workflow's memory is kept between runs; relative to the folder of the caller."""

    path: str
    load: bool = True
    save: bool = True
