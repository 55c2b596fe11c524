(function (global) {
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
})(globalThis)
