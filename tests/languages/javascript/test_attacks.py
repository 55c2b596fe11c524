"""Hostile code: each piece ends in time, says why, and the next evaluation is right.

The promise is 150 ms; the tests allow for a machine that is busy with other things.
"""

from __future__ import annotations

import pytest

from resile.languages.javascript.evaluate import Evaluation, Sandbox

PATIENCE_MILLISECONDS = 2_000

# (what it does, code, the kinds of problem that are right answers to it)
LOOPS = [
    ("a loop", "for (;;);", "timeout"),
    ("a loop that can't be left", "while (true) { try { for (;;); } catch { } finally { for (;;); } }", "timeout"),
    ("a loop after the return", "try { return 1 } finally { for (;;); }", "timeout"),
    ("a regular expression", "/(a+)+$/.test('a'.repeat(40) + 'b')", "timeout"),
    ("nested stars", "/((a*)*)*b/.test('a'.repeat(60))", "timeout"),
    ("a getter", "({get x() { for (;;); }})", "timeout"),
    ("toJSON", "({toJSON() { for (;;); }})", "timeout"),
    ("toJSON of everything", "Object.prototype.toJSON = () => { for (;;); }; ({a: 1})", "timeout"),
    ("the name of the result", "({get [Symbol.toStringTag]() { for (;;); }})", "timeout"),
    ("the text of what is thrown", "throw {toString() { for (;;); }}", "timeout"),
    (
        "the stack of what is thrown",
        "const e = new Error('x'); e.name = {toString() { for (;;); }}; throw e",
        "timeout",
    ),
    ("an iterator", "[...{*[Symbol.iterator]() { for (;;) yield 1; }}]", "timeout memory"),
    ("a generator", "function* f() { for (;;) yield* f(); } for (const x of f());", "timeout error"),
    ("sorting", "[3, 1, 2].sort(() => { for (;;); })", "timeout"),
    ("a loop in a replacement", "'a'.replace(/a/, () => { for (;;); })", "timeout"),
    ("an async function", "(async () => { for (;;); })()", "timeout"),
]
NATIVE = [
    ("indexOf", "'a'.repeat(3e5).indexOf('a'.repeat(1.5e5) + 'b')", "timeout"),
    ("includes", "'a'.repeat(3e5).includes('a'.repeat(1.5e5) + 'b')", "timeout"),
    ("lastIndexOf", "'a'.repeat(3e5).lastIndexOf('a'.repeat(1.5e5) + 'b')", "timeout"),
    ("split", "'a'.repeat(3e5).split('a'.repeat(1.5e5) + 'b').length", "timeout"),
    ("replaceAll", "'a'.repeat(3e5).replaceAll('a'.repeat(1.5e5) + 'b', '')", "timeout"),
    ("a BigInt as text", "(3n ** 600000n).toString().length", "timeout"),
    (
        "BigInt division",
        "const big = 3n ** 300000n; for (let i = 0; i < 99; i++) (big * big) / (big + 1n); 1",
        "timeout",
    ),
    ("unshift", "const a = new Array(5e5).fill(0); for (let i = 0; i < 1e4; i++) a.unshift(0); 1", "timeout memory"),
    (
        "splice",
        "const a = new Array(5e5).fill(0); for (let i = 0; i < 1e4; i++) a.splice(1, 0, 0); 1",
        "timeout memory",
    ),
    ("an array of nothing", "new Array(2 ** 32 - 1).join('x')", "timeout memory error"),
    ("a sparse array", "const a = []; a[4294967294] = 1; a.sort(); a.indexOf(2)", "timeout memory error"),
]
MEMORY = [
    ("objects", "const a = []; for (;;) a.push({a: [1, 2, 3], b: 'x' + a.length})", "timeout memory"),
    ("a string that doubles", "let s = 'x'; for (;;) s += s", "memory error"),
    ("a string in one go", "'x'.repeat(2 ** 30)", "error memory"),
    ("arrays in one go", "const a = []; for (;;) a.push(new Array(1e6).fill(7))", "memory"),
    ("a map", "const m = new Map(); for (let i = 0; ; i++) m.set(i, 'x'.repeat(1000) + i)", "timeout memory"),
    ("padding", "'x'.padEnd(1e9)", "memory error"),
    ("recursion", "(function f() { return f() + 1; })()", "error"),
    ("recursion through toString", "const o = {toString() { return '' + o; }}; '' + o", "error"),
    ("a nested result", "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; a", "error memory timeout"),
    ("a nested pattern", "/" + "(" * 3000 + ")" * 3000 + "/.test('')", "error syntax"),
    ("nested source", "(" * 4000 + ")" * 4000, "error syntax"),
    ("a nested text parsed", "JSON.parse('['.repeat(1e5))", "error"),
    ("a huge result", "'x'.repeat(256 * 1024)", "too_large"),
    ("a huge error", "throw new Error('x'.repeat(1e6))", "error"),
    ("a huge text in place of an error", "throw {toString() { throw 'x'.repeat(1e6) }}", "error"),
    ("a huge result of many parts", "Array.from({length: 40000}, (_, i) => 'item' + i)", "too_large timeout"),
]
ESCAPES = [
    ("require", "require('fs').readFileSync('/etc/passwd')", "error"),
    ("process", "process.exit(1)", "error"),
    ("global", "global.process", "error"),
    ("globalThis", "globalThis.process", "error"),
    ("import()", "import('os')", "type"),
    ("an import statement", "import os from 'os'", "syntax"),
    ("eval", "eval('1')", "error"),
    ("indirect eval", "(0, eval)('1')", "error"),
    ("Function", "Function('return 1')()", "error"),
    ("new Function", "new Function('return 1')()", "error"),
    ("constructor.constructor", "({}).constructor.constructor('return 1')()", "error"),
    ("this.constructor.constructor", "this.constructor.constructor('return 1')()", "error"),
    ("the constructor of a function", "(() => 1).constructor('return 1')()", "error"),
    ("the constructor of an async function", "(async () => 1).constructor('return 1')()", "error"),
    ("the constructor of a generator", "(function* () {}).constructor('return 1')()", "error"),
    ("the constructor of a frozen input", "outputs.constructor.constructor('return 1')()", "error"),
    ("the callee's caller", "(function f() { return f.caller.constructor('return 1')(); })()", "error"),
    ("Proxy", "new Proxy({}, {get() { for (;;); }})", "error"),
    ("Reflect", "Reflect.ownKeys({})", "error"),
    ("Atomics", "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)", "error"),
    ("typed arrays", "new Uint8Array(2 ** 30)", "error"),
    ("promises", "Promise.resolve().then(() => { for (;;); })", "error"),
    ("a chain of async functions", "(async function f() { await 1; return f(); })()", "type"),
    ("queueMicrotask", "queueMicrotask(() => { for (;;); })", "error"),
    ("timers", "setTimeout(() => 1, 0)", "error"),
    ("console", "console.log(1)", "error"),
    ("the clock", "new Date().getTime()", "error"),
    ("another clock", "performance.now()", "error"),
    ("sloppy this", "(function () { return this.process; })()", "error"),
    ("with", "with (outputs) { x }", "syntax"),
    ("std", "std.exit(1)", "error"),
]
MUTATIONS = [
    ("a field", "outputs.build.status = 'bad'", "error"),
    ("a new field", "outputs.extra = 1", "error"),
    ("a field deep down", "outputs.build.list[1].deep = 0", "error"),
    ("a list", "outputs.build.list.push(1)", "error"),
    ("a list in place", "outputs.build.list.reverse()", "error"),
    ("delete", "delete outputs.build", "error"),
    ("the variable", "outputs = {}", "error"),
    ("assign", "Object.assign(outputs.build, {status: 'bad'})", "error"),
    ("defineProperty", "Object.defineProperty(outputs.build, 'status', {value: 'bad'})", "error"),
    ("the prototype", "Object.setPrototypeOf(outputs, {x: 1})", "error"),
    ("__proto__", "outputs.__proto__ = {x: 1}", "error"),
    ("the clock", "Date.now = () => 1", "error"),
]
BROKEN = [
    ("unclosed parenthesis", "(1", "syntax"),
    ("an unclosed string", "'abc", "syntax"),
    ("an unclosed template", "`abc", "syntax"),
    ("an unclosed comment", "/* abc", "syntax"),
    ("a stray brace", "}", "syntax"),
    ("no language at all", "if you please", "syntax"),
    ("a NUL", "1\0", "syntax"),
    ("half a character", "'\ud800'", "syntax"),
    ("code of one byte too many", "'" + "x" * 8191 + "'", "too_large"),
]

CONTEXT = {"outputs": {"build": {"status": "ok", "list": [1, {"deep": 2}]}}}


def ask(sandbox: Sandbox, code: str) -> Evaluation:
    """One evaluation with some inputs."""
    return sandbox.evaluate(code, CONTEXT, now=1_000.0, seed="seed", form="body")


def cases(*tables: list[tuple[str, str, str]]) -> pytest.MarkDecorator:
    """The parametrization over tables of attacks."""
    rows = [pytest.param(code, kinds, id=name.replace(" ", "-")) for table in tables for name, code, kinds in table]
    return pytest.mark.parametrize(("code", "kinds"), rows)


def expect_survived(sandbox: Sandbox, code: str, kinds: str) -> None:
    """The code is refused in time with one of these kinds, and the sandbox is as good as new."""
    answer = ask(sandbox, code)
    assert answer.value is None
    assert answer.kind in kinds.split(), answer
    assert answer.problem != ""
    assert answer.milliseconds < PATIENCE_MILLISECONDS
    after = ask(sandbox, "[outputs.build.status, [1, 2].length, 'a' + 1, Object.prototype.toJSON === undefined]")
    assert (after.value, after.problem) == (["ok", 2, "a1", True], "")
    assert after.milliseconds < PATIENCE_MILLISECONDS


@cases(LOOPS)
def test_endless_loops_end(sandbox: Sandbox, code: str, kinds: str) -> None:
    """Code that never ends is ended, wherever its loop hides."""
    expect_survived(sandbox, code, kinds)


@cases(NATIVE)
def test_the_kernel_ends_what_the_engine_does_not_interrupt(sandbox: Sandbox, code: str, kinds: str) -> None:
    """Work inside one native call, which polls no limit, is ended by the kernel."""
    expect_survived(sandbox, code, kinds)


@cases(MEMORY)
def test_memory_stack_and_results_are_bounded(sandbox: Sandbox, code: str, kinds: str) -> None:
    """Code that wants more memory, stack or result than there is gets none."""
    expect_survived(sandbox, code, kinds)


@cases(ESCAPES)
def test_there_is_nothing_to_reach(sandbox: Sandbox, code: str, kinds: str) -> None:
    """No way leads to the system, to new code, to a clock, or past the end of the evaluation."""
    expect_survived(sandbox, code, kinds)


@cases(MUTATIONS)
def test_inputs_do_not_change(sandbox: Sandbox, code: str, kinds: str) -> None:
    """An attempt to change what was given is an error and changes nothing."""
    expect_survived(sandbox, code, kinds)
    assert ask(sandbox, "outputs").value == CONTEXT["outputs"]


@cases(BROKEN)
def test_broken_code_is_refused(sandbox: Sandbox, code: str, kinds: str) -> None:
    """Code that does not parse, or is too long, is refused."""
    expect_survived(sandbox, code, kinds)


def test_the_globals_are_these_and_no_others(sandbox: Sandbox) -> None:
    """The global object holds the whitelist, the given variables, and nothing else."""
    answer = ask(sandbox, "Object.getOwnPropertyNames(this).filter((name) => name !== 'outputs').sort()")
    errors = "Error EvalError RangeError ReferenceError SyntaxError TypeError URIError"
    types = "Array Boolean Date JSON Map Math Number Object RegExp Set String Symbol"
    rest = "Infinity NaN isFinite isNaN parseFloat parseInt undefined"
    assert answer.value == sorted(f"{errors} {types} {rest}".split())


def test_pollution_ends_with_the_evaluation(sandbox: Sandbox) -> None:
    """What code does to the built-in objects is gone in the next evaluation."""
    polluted = "Object.prototype.x = 1; Array.prototype.push = 2; JSON.stringify = () => 'no'; this.y = 4; 'done'"
    assert ask(sandbox, polluted).value == "done"
    looked = ask(sandbox, "[({}).x, typeof [].push, JSON.stringify([]), typeof y]").value
    assert looked == [None, "function", "[]", "undefined"]


def test_a_promise_never_runs_on(sandbox: Sandbox) -> None:
    """What an async function would do after its first wait never happens."""
    code = "let later = 'never'; (async () => { await 1; later = 'ran'; })(); later"
    assert ask(sandbox, code).value == "never"
