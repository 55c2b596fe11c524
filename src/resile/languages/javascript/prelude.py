"""The JavaScript around user code: it prepares a fresh context, and encodes the answer.

    PRELUDE -> part => {prepare, probe, run}[part]
      prepare(variables, now, random, helpers)   variables become frozen globals; the rest is source made below
      probe(source)                              "" if it compiles, else an error
      run(source)                                a value or an error

    value   V["class of the result", result as JSON]
    error   E["what was thrown", "its stack"]

All results leave as text of JSON.stringify: the binding cuts strings at a NUL, fails on lone surrogates, and reads
properties of an exception outside its time limit. An indirect `eval` runs the code, because its completion value is the
result. User code may redefine anything: its context is discarded with it.

Compiling prelude.js costs more than all else in an evaluation, so it contains only what every evaluation needs. It runs
as one line: in a stack, every line after the first is the user's.
"""

from __future__ import annotations


def read_source(module: str, name: str) -> str:
    """The JavaScript in a file beside a module, as one line."""
    with open(f"{module.rpartition('/')[0]}/{name}", encoding="utf-8") as file:
        return file.read().replace("\n", " ").rstrip()


PRELUDE = read_source(__file__, "prelude.js")
_RANDOM = read_source(__file__, "random.js")
_LOWER = "const lower = (value) => String(value).toLowerCase(), listed = (value) => Array.isArray(value) ? value : [];"
_HELPERS = {
    "contains": "(whole, part) => lower(whole).includes(lower(part))",
    "startsWith": "(whole, part) => lower(whole).startsWith(lower(part))",
    "endsWith": "(whole, part) => lower(whole).endsWith(lower(part))",
    "length": "(value) => typeof value === 'string' ? value.length : Object.keys(value ?? {}).length",
    "always": "() => true",
    "success": "() => true",
    "failure": "() => false",
    "any": "(list, holds) => listed(list).some((item) => holds(item))",
    "all": "(list, holds) => listed(list).every((item) => holds(item))",
    "none": "(list, holds) => !listed(list).some((item) => holds(item))",
    "count": "(list, holds) => listed(list).filter((item) => holds(item)).length",
}


def random_source(code: str, seed: str) -> str:
    """The source of `Math.random` for this code; `undefined` if the code does not mention it."""
    if "random" not in code:
        return "undefined"
    return _RANDOM.replace("SEED", "'" + "".join(f"\\u{{{ord(letter):x}}}" for letter in seed) + "'")


def helpers_source(code: str) -> str:
    """The source of an object with the helper functions that this code mentions; a non-list counts as empty there."""
    named = [f"{name}: {source}" for name, source in _HELPERS.items() if name in code]
    return f"{_LOWER} ({{{', '.join(named)}}})" if named else "({})"


def wrappings(form: str, code: str) -> list[tuple[str, str]]:
    """The texts to put before and after the code, in the order to try; the first that compiles counts.

    A body that begins with a brace and does not end in a semicolon is first tried as an object, like in a console; then
    as statements, whose last value is the result; then, if it contains `return`, as the body of a function.
    """
    if form == "expression":
        return [("(", ")")]
    text = code.strip()
    found = [("(", ")")] if text.startswith("{") and not text.endswith(";") else []
    found.append(("", ""))
    if "return" in text:
        found.append(("(function () {", "})()"))
    return found
