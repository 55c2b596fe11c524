"""The JavaScript around the code of a workflow with Liquid templates: its memory, its log, dates, and helpers.

    prelude_for(code, namespace)     the source before an expression or a body: the code can read the memory
    program_parts(code, namespace)   the sources before and after a script, which can also write it; the program
                                     returns {value, memory, log}

Only the parts that the code mentions are put before it, all on the first line; the sandbox subtracts their length, so
that positions in messages are those in the code.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from resile.languages.javascript.prelude import read_source

# Fields of a result that is no object, so that code need not check its type: `text` is the text itself, `issues` is
# empty.
_OF_PLAIN_VALUES = {
    "text": "Object.defineProperty(String.prototype, 'text', { get() { return String(this); } }); ",
    "issues": "for (const kind of [String, Number, Boolean]) "
    "Object.defineProperty(kind.prototype, 'issues', { get() { return []; } }); ",
}
_METHODS = (
    "trim", "trimStart", "trimEnd", "includes", "startsWith", "endsWith", "split", "match", "matchAll", "replace",
    "replaceAll", "toLowerCase", "toUpperCase", "indexOf", "lastIndexOf", "slice", "substring", "substr", "charAt",
    "search", "padStart", "padEnd", "localeCompare",
)  # fmt: skip
_AS_TEXT = re.compile(
    rf"JSON\.parse|\$\{{|String\(|\.test\(|\.exec\(|\+|contains\(|startsWith\(|endsWith\(|\.(?:{'|'.join(_METHODS)})\("
)
_READ_ONLY = "throw new Error('only a script or memory step can write memory');"
_HAS_ISSUE = "(list, field, value) => (list ?? []).some((one) => one?.[field] === value)"
_HAS_FILE = "(list, part) => (list ?? []).some((one) => String(one?.file ?? '').includes(part))"
_HELPERS = {
    "hasIssueWith": _HAS_ISSUE,
    "hasIssue": _HAS_ISSUE,
    "countIssues": "(list, field, value) => (list ?? []).filter((one) => one?.[field] === value).length",
    "hasFileMatching": _HAS_FILE,
    "hasFileWith": _HAS_FILE,
    # A run by hand has every permission, as in Visor's command line.
    **dict.fromkeys(("hasMinPermission", "isOwner", "isMember", "isCollaborator", "isContributor"), "() => true"),
    "isFirstTimer": "() => false",
}


@lru_cache(maxsize=1024)
def uses_text(code: str) -> bool:
    """May this code use an output that is JSON as the text that it was?"""
    return "output" in code and _AS_TEXT.search(code) is not None


@cache
def _source(name: str) -> str:
    return f"{read_source(__file__, name)} "


def prelude_for(code: str, namespace: str) -> str:
    """The source before code that may read the memory and log; empty if it mentions neither."""
    return _prelude_of(code, namespace, _READ_ONLY)


def program_parts(code: str, namespace: str) -> tuple[str, str]:
    """The sources before and after a script, which return its value with its memory and its log."""
    before = _prelude_of(f"{code} memory log", namespace, "")
    return f"{before}return {{ value: (() => {{ ", "\n})() ?? null, memory: memory.$changed(), log: $said };"


def _prelude_of(code: str, namespace: str, write: str) -> str:
    """The source of the parts that the code mentions; `write` is the JavaScript before each write to the memory."""
    parts = [source for word, source in _OF_PLAIN_VALUES.items() if f".{word}" in code]
    if uses_text(code):
        named = [name for name in _METHODS if f".{name}(" in code]
        parts.append(_source("text.js").replace("METHODS", repr(named)))
    if "memory" in code:
        import msgspec

        name = msgspec.json.encode(namespace).decode()
        parts.append(_source("memory.js").replace("WRITE", write).replace("NAMESPACE", name))
    if "log" in code or "console" in code:
        parts.append(_source("log.js"))
    if "Date" in code:
        parts.append(_source("date.js"))
    parts += [f"const {name} = {source}; " for name, source in _HELPERS.items() if f"{name}(" in code]
    return "".join(parts)
