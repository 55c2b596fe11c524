"""The helper process: it evaluates JavaScript and has no access to anything else.

    engine <--frames, one socket--> keeper, which never sees user code and only waits
                              \\      | fork
                               \\--> worker, which answers until the kernel ends it

A frame is four bytes of length and a text. A request is fields, separated by NUL:

    R form code variables now seed     run this (the seed is last: it alone may hold a NUL)
    C form code                        compile this

An answer is one letter and its data:

    H                 the keeper is there (once, unasked)
    V[class, value]   the result; null for a check          T         time is up
    E[thrown, stack]  the code threw                        L         the result is too large
    S[thrown, stack]  no wrapping of the code compiles      X text    what was thrown can't be described
                                                            D text    the variables can't be taken in

Each evaluation has a context of its own, made before the request comes. The kernel ends native
code, which does not check the time limit: SIGPROF at its default action kills the worker, and the keeper answers `T`
and forks the next one in a millisecond. Any other death of a worker ends the keeper too, and the engine starts a new
pair. When the engine goes away the worker reads the end of the socket, exits with 0, and the keeper follows.

It imports only built-in modules, so that it starts as fast as a bare interpreter.
"""

from __future__ import annotations

import _signal
import posix
import resource

import _quickjs

from resile.languages.javascript import limits
from resile.languages.javascript.prelude import PRELUDE, helpers_source, random_source, wrappings

RECEIVE_BYTES = 256 * 1024


def main() -> None:
    """Run the keeper: fork one worker at a time, until one ends otherwise than by the kernel's CPU limit."""
    _signal.signal(_signal.SIGPROF, _signal.SIG_DFL)
    # Close descriptors that the engine inherited from its own caller.
    posix.closerange(3, limits.INHERITED_DESCRIPTORS_MAX)
    restrict(resource.RLIMIT_AS, limits.ADDRESS_SPACE_BYTES_MAX)
    restrict(resource.RLIMIT_NOFILE, limits.DESCRIPTORS_MAX)
    restrict(resource.RLIMIT_FSIZE, 0)
    restrict(resource.RLIMIT_CORE, 0)
    send(b"H")
    while True:
        pid = posix.fork()
        if pid == 0:
            restrict(resource.RLIMIT_NPROC, 0)
            serve()
            posix._exit(0)
        _, status = posix.waitpid(pid, 0)
        if not (posix.WIFSIGNALED(status) and posix.WTERMSIG(status) == _signal.SIGPROF):
            return
        send(b"T")


def restrict(what: int, limit: int) -> None:
    """Set a limit permanently; a lower one stays."""
    hard = resource.getrlimit(what)[1]
    value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(what, (value, value))


def serve() -> None:
    """Run the worker: answer requests, each with a context that was made before the request came."""
    while True:
        sandbox = Evaluator()
        request = receive()
        if request is None:
            return
        answer = sandbox.answer(request)
        # Stop the timer: a kill after the answer would be reported for the next request.
        _signal.setitimer(_signal.ITIMER_PROF, 0)
        send(answer)


class Evaluator:
    """A fresh context, good for one request."""

    def __init__(self) -> None:
        self.context = context = _quickjs.Context()
        context.set_memory_limit(limits.MEMORY_BYTES_MAX)
        context.set_max_stack_size(limits.STACK_BYTES_MAX)
        part = context.eval(PRELUDE)
        self.prepare = part("prepare")
        self.probe = part("probe")
        self.run = part("run")

    def answer(self, request: bytes) -> bytes:
        """The answer to a request, whatever the code does, unless the kernel kills the worker first."""
        kind, form, code, *rest = request.decode("utf-8", "surrogatepass").split("\0", 5)
        if kind == "R":
            variables, now, seed = rest
            self.limit(limits.VARIABLES_CPU_SECONDS_MAX)
            try:
                # The binding truncates integers to 32 bits.
                self.prepare(variables, float(now), random_source(code, seed), helpers_source(code))
            except _quickjs.JSException as error:
                return b"D" + describe(error)
        self.limit(limits.CODE_CPU_SECONDS_MAX)
        try:
            source, reason = self.compile(form, code)
            answer = f"S{reason}" if reason else self.run(source) if kind == "R" else 'V["Null",null]'
        except _quickjs.JSException as error:
            text = describe(error)
            return b"T" if text.startswith(b"InternalError: interrupted") else b"X" + text
        answered: bytes = answer.encode()
        return answered if len(answered) <= limits.RESULT_BYTES_MAX else b"L"

    def limit(self, cpu_seconds: float) -> None:
        """Start both limits: the one that the JavaScript engine checks, and the kernel's."""
        _signal.setitimer(_signal.ITIMER_PROF, limits.KERNEL_CPU_SECONDS)
        self.context.set_time_limit(cpu_seconds)

    def compile(self, form: str, code: str) -> tuple[str, str]:
        """The source to run and no reason, or the reason why the last wrapping does not compile.

        The `throw` keeps a probe from running any of the code; the `void` is the value of code without one.
        """
        reason = ""
        for before, after in wrappings(form, code):
            wrapped = f"{before}\n{code}\n{after}"
            found = self.probe(f'"use strict";throw null;{wrapped}')
            if not found:
                return f'"use strict";void 0;{wrapped}', ""
            reason = found.removeprefix("E")
        return "", reason


def describe(error: BaseException) -> bytes:
    """The binding's message for an exception, cut to a bounded length."""
    return str(error)[: limits.PROBLEM_CHARACTERS_MAX].encode("utf-8", "replace")


def receive() -> bytes | None:
    """The next request; None when the engine is gone."""
    data = bytearray()
    length = 4
    while len(data) < length:
        more = posix.read(0, RECEIVE_BYTES)
        if not more:
            return None
        data += more
        if len(data) >= 4:
            length = 4 + int.from_bytes(data[:4], "big")
    return bytes(data[4:])


def send(answer: bytes) -> None:
    """Send one frame to the engine."""
    data = len(answer).to_bytes(4, "big") + answer
    while data:
        data = data[posix.write(0, data) :]
