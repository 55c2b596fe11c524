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

Compiling this costs more than all else in an evaluation, so it contains only what every evaluation needs. It is one
line: in a stack, every line after the first is the user's.
"""

from __future__ import annotations

PRELUDE = r"""(function (global) {
"use strict";
const compile = global.eval, {parse, stringify} = JSON, {defineProperty, entries, freeze, values} = Object;
const {isArray} = Array, describe = Object.prototype.toString;
/* Joined, not added: a long sum of strings is a rope, which the binding can't read. */
const join = Function.prototype.call.bind(Array.prototype.join);
const kept = new Set(["Object", "Array", "String", "Number", "Boolean", "RegExp", "Map", "Set", "Math", "JSON",
  "Symbol", "parseInt", "parseFloat", "isNaN", "isFinite", "Infinity", "NaN", "undefined", "Error", "EvalError",
  "RangeError", "ReferenceError", "SyntaxError", "TypeError", "URIError"]);

for (const name of Object.getOwnPropertyNames(global)) if (!kept.has(name)) delete global[name];
/* These constructors compile text; without them no way leads from a function to new code. */
for (const kind of [function () {}, function* () {}, async function () {}, async function* () {}])
  delete Object.getPrototypeOf(kind).constructor;

const publish = (name, value) => defineProperty(global, name, {value, enumerable: true, configurable: true});
const quoted = (value) => stringify(String(value).slice(0, 1000));
const failed = (error) => join(["E[", quoted(error), ",", quoted(error instanceof Error ? error.stack : ""), "]"], "");

return (part) => ({
  prepare(variables, now, random, helpers) {
    const given = parse(variables), found = [given];
    /* A list and no recursion: values may be nested deeper than the stack allows. */
    for (let i = 0; i < found.length; i++) {
      const parts = isArray(found[i]) ? found[i] : values(found[i]);
      for (let j = 0; j < parts.length; j++)
        if (typeof parts[j] === "object" && parts[j] !== null) found.push(parts[j]);
      freeze(found[i]);
    }
    Math.random = compile(random);
    publish("Date", freeze({now: () => now}));
    for (const [name, value] of entries(compile(helpers))) publish(name, value);
    for (const [name, value] of entries(given)) publish(name, value);
  },
  probe(source) {
    try { compile(source); } catch (error) { return error === null ? "" : failed(error); }
  },
  run(source) {
    try {
      const value = compile(source), name = describe.call(value).slice(8, -1);
      return join(["V[", stringify(name), ",", typeof value === "bigint" ? "0" : stringify(value) ?? "null", "]"], "");
    } catch (error) { return failed(error); }
  },
})[part];
})(globalThis)""".replace("\n", " ")

# FNV-1a turns the seed into a number, mulberry32 the number into a sequence.
_RANDOM = r"""(function () {
  const {imul} = Math, seed = SEED;
  let state = 2166136261;
  for (let i = 0; i < seed.length; i++) state = imul(state ^ seed.charCodeAt(i), 16777619);
  return () => {
    state = state + 0x6D2B79F5 | 0;
    let mixed = imul(state ^ state >>> 15, state | 1);
    mixed = mixed + imul(mixed ^ mixed >>> 7, mixed | 61) ^ mixed;
    return ((mixed ^ mixed >>> 14) >>> 0) / 4294967296;
  };
})()""".replace("\n", " ")

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
