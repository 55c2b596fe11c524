"""The sandboxed process that evaluates the filter of a fan-out for one item after the other.

    stdin: [code, bare] as JSON, then the items as JSON, each on a line of its own
    stdout: for each item `1` or `0`; or `!` and an error as a JSON text, and nothing after that

The process writes each answer at once, so that if the kernel ends it because code does not stop, the number of answers
gives the item. One context serves all items, because making one costs more than an answer; everything in which code
could leave a value for the next item is frozen.
"""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MEMORY_BYTES_MAX = 256 * 1024 * 1024
TAKE_CPU_SECONDS_MAX = 5.0

# The gate is made before the prelude removes what it needs. Bare names are own fields of the item, then globals, else
# undefined. Everything that leaves is JSON, because the binding fails on other texts.
GATE = r"""(function (global) {
"use strict";
const {parse, stringify} = JSON, {freeze, values, hasOwn, getOwnPropertyNames} = Object, {isArray} = Array;
let item, filter, given;
const has = (name) => typeof item === "object" && item !== null && !isArray(item) && hasOwn(item, name);
const fields = new Proxy({}, {
  has: (_, name) => name === "item" || has(name) || !(name in global),
  get: (_, name) => name === "item" ? item : has(name) ? item[name] : undefined,
  set: () => false,
});
return (part) => ({
  seal(compiled, bare) {
    filter = compiled;
    given = bare ? () => fields : () => item;
    for (const name of getOwnPropertyNames(global)) {
      const value = global[name];
      if (typeof value === "function" && value.prototype) freeze(value.prototype);
      if (typeof value === "function" || typeof value === "object") freeze(value);
    }
    freeze(global);
  },
  take(text) {
    item = parse(text);
    /* A list and no recursion: values may be nested deeper than the stack allows. */
    const found = [item];
    for (let i = 0; i < found.length; i++) {
      if (typeof found[i] !== "object" || found[i] === null) continue;
      for (const inner of values(found[i])) if (typeof inner === "object") found.push(inner);
      freeze(found[i]);
    }
  },
  judge() {
    try {
      const value = filter(given());
      if (typeof value !== "function") return value ? "1" : "0";
      return '!"the filter is a function; write an expression that says whether `item` is wanted"';
    } catch (error) {
      return ["!", stringify(String(error).slice(0, 500))].join("");
    }
  },
})[part];
})(globalThis)"""
PLAIN = '"use strict";(function (item) {{ return (\n{code}\n); }})'
BARE = '(function (fields) {{ with (fields) return (function () {{ "use strict"; return (\n{code}\n); }})(); }})'


def main() -> None:
    """Answer until there are no more items."""
    # The interpreter runs isolated and may not know where the package is.
    sys.path.append(
        os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
    )
    import resource
    import signal

    import _quickjs

    from resile.languages.javascript import limits
    from resile.languages.javascript.helper_process import restrict

    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    restrict(resource.RLIMIT_AS, limits.ADDRESS_SPACE_BYTES_MAX)
    restrict(resource.RLIMIT_FSIZE, 0)
    restrict(resource.RLIMIT_CORE, 0)
    restrict(resource.RLIMIT_NPROC, 0)
    code, bare = json.loads(sys.stdin.buffer.readline())
    context = _quickjs.Context()
    context.set_memory_limit(MEMORY_BYTES_MAX)
    context.set_max_stack_size(limits.STACK_BYTES_MAX)
    try:
        gate = _gate(context, code, bare)
        take, judge = gate("take"), gate("judge")
        for line in sys.stdin.buffer:
            context.set_time_limit(TAKE_CPU_SECONDS_MAX)
            take(line.decode())
            # The kernel ends native code, which does not check the time limit.
            signal.setitimer(signal.ITIMER_PROF, limits.KERNEL_CPU_SECONDS)
            context.set_time_limit(limits.CODE_CPU_SECONDS_MAX)
            answer = judge()
            signal.setitimer(signal.ITIMER_PROF, 0)
            _write_answer(answer)
            if answer.startswith("!"):
                return
    except _quickjs.JSException as error:
        _write_answer("!" + json.dumps(_describe_error(str(error), limits.CODE_CPU_SECONDS_MAX)))


def _gate(context: Any, code: str, bare: bool) -> Any:
    """A context with only the filter in it."""
    from resile.languages.javascript.prelude import PRELUDE, helpers_source, random_source

    gate = context.eval(GATE)
    part = context.eval(PRELUDE)
    part("prepare")("{}", time.time() * 1e3, random_source(code, "items"), helpers_source(code))
    problem = part("probe")(f'"use strict";throw null;(\n{code}\n)')
    if problem:
        _write_answer("!" + json.dumps(json.loads(problem[1:])[0]))
        sys.exit(0)
    gate("seal")(context.eval((BARE if bare else PLAIN).format(code=code)), bare)
    return gate


def _describe_error(thrown: str, cpu_seconds: float) -> str:
    """Describe an error of the JavaScript engine itself: it stopped the code, or has no memory left."""
    if thrown.startswith("InternalError: interrupted"):
        return f"it took more than {cpu_seconds * 1e3:.0f} ms of CPU time"
    return thrown.split("\n")[0] if thrown != "null" else "out of memory"


def _write_answer(answer: str) -> None:
    data = answer.encode()
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    main()
