"""The JavaScript around the code of a workflow with Liquid templates: its memory, its log, dates, and helpers.

    prelude_for(code, namespace)     the source before an expression or a body: the code can read the memory
    program_parts(code, namespace)   the sources before and after a script, which can also write it; the program
                                     returns {value, memory, log}

Only the parts that the code mentions are put before it, all on the first line; the sandbox subtracts their length, so
that positions in messages are those in the code.
"""

from __future__ import annotations

_MEMORY = (
    "const memory = (() => { const data = JSON.parse(JSON.stringify($memory)), own = NAMESPACE; "
    "const at = (name) => data[name ?? own] ?? {}; "
    "const write = (name) => { WRITE changed.add(name ?? own); return data[name ?? own] ??= {}; }; "
    "return { get: (key, name) => at(name)[key], has: (key, name) => Object.hasOwn(at(name), key), "
    "list: (name) => Object.keys(at(name)), getAll: (name) => at(name), listNamespaces: () => Object.keys(data), "
    "set: (key, value, name) => write(name)[key] = value ?? null, "
    "append: (key, value, name) => { const old = at(name)[key], list = Array.isArray(old) ? old : "
    "old === undefined ? [] : [old]; return write(name)[key] = [...list, value]; }, "
    "increment: (key, by = 1, name) => { const old = at(name)[key] ?? 0; if (typeof old !== 'number') "
    "throw new TypeError(`${key} is not a number`); return write(name)[key] = old + by; }, "
    "delete: (key, name) => { const had = Object.hasOwn(at(name), key); delete write(name)[key]; return had; }, "
    "clear: (name) => { write(name); data[name ?? own] = {}; }, "
    "$changed: () => Object.fromEntries([...changed].map((name) => [name, data[name]])) }; })(); "
)
# Fields of a result that is no object, so that code need not check its type: `text` is the text itself, `issues` is
# empty.
_OF_PLAIN_VALUES = {
    "text": "Object.defineProperty(String.prototype, 'text', { get() { return String(this); } }); ",
    "issues": "for (const kind of [String, Number, Boolean]) "
    "Object.defineProperty(kind.prototype, 'issues', { get() { return []; } }); ",
}
_READ_ONLY = "throw new Error('only a script or memory step can write memory');"
_LOG = (
    "const $said = []; const log = (...parts) => { if ($said.length < 100) $said.push(parts.map((part) => "
    "typeof part === 'string' ? part : JSON.stringify(part)).join(' ').slice(0, 500)); }; "
    "const console = { log, info: log, warn: log, error: log, debug: log }; "
)
# Days since 1970 to a date, as calendars of any language do it.
_DATE = (
    "const Date = class { constructor(at) { this.at = typeof at === 'number' ? at : $now; } "
    "static now() { return $now; } getTime() { return this.at; } valueOf() { return this.at; } "
    "toJSON() { return this.toISOString(); } toString() { return this.toISOString(); } "
    "getFullYear() { return +this.toISOString().slice(0, 4); } "
    "getMonth() { return +this.toISOString().slice(5, 7) - 1; } "
    "getDate() { return +this.toISOString().slice(8, 10); } getHours() { return +this.toISOString().slice(11, 13); } "
    "getMinutes() { return +this.toISOString().slice(14, 16); } "
    "getDay() { return (Math.floor(this.at / 864e5) + 4) % 7; } "
    "toISOString() { const days = Math.floor(this.at / 864e5), rest = this.at - days * 864e5, z = days + 719468, "
    "era = Math.floor(z / 146097), doe = z - era * 146097, yoe = Math.floor((doe - Math.floor(doe / 1460) + "
    "Math.floor(doe / 36524) - Math.floor(doe / 146096)) / 365), doy = doe - (365 * yoe + Math.floor(yoe / 4) - "
    "Math.floor(yoe / 100)), mp = Math.floor((5 * doy + 2) / 153), d = doy - Math.floor((153 * mp + 2) / 5) + 1, "
    "m = mp < 10 ? mp + 3 : mp - 9, y = yoe + era * 400 + (m <= 2 ? 1 : 0), "
    "p = (n, w = 2) => String(n).padStart(w, '0'); "
    "return `${p(y, 4)}-${p(m)}-${p(d)}T${p(Math.floor(rest / 36e5))}:${p(Math.floor(rest / 6e4) % 60)}:"
    "${p(Math.floor(rest / 1e3) % 60)}.${p(Math.floor(rest) % 1e3, 3)}Z`; } }; "
)
_HAS_ISSUE = "(list, field, value) => (list ?? []).some((one) => one?.[field] === value)"
_HAS_FILE = "(list, part) => (list ?? []).some((one) => String(one?.file ?? '').includes(part))"
_HELPERS = {
    "hasIssueWith": _HAS_ISSUE,
    "hasIssue": _HAS_ISSUE,
    "countIssues": "(list, field, value) => (list ?? []).filter((one) => one?.[field] === value).length",
    "hasFileMatching": _HAS_FILE,
    "hasFileWith": _HAS_FILE,
}


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
    if "memory" in code:
        import msgspec

        name = msgspec.json.encode(namespace).decode()
        parts.append("const changed = new Set(); ")
        parts.append(_MEMORY.replace("WRITE", write).replace("NAMESPACE", name))
    if "log" in code or "console" in code:
        parts.append(_LOG)
    if "Date" in code:
        parts.append(_DATE)
    parts += [f"const {name} = {source}; " for name, source in _HELPERS.items() if f"{name}(" in code]
    return "".join(parts)
