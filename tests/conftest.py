"""What all suites share: processes that tests start must not inherit signals that the caller ignores."""

from __future__ import annotations

import signal

# `nohup` and a shell's `&` hand on ignored signals, and a test that sends one would wait in vain.
for _number in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
