"""Threads that decode: two that meet a type for the first time at once end the process in msgspec (SIGSEGV)."""

from __future__ import annotations

import subprocess
import sys

from resile.model import codec
from resile.model.workflow import Shell, Step
from tests.core.world import flow

STARTS = 8
DECODES = """
import sys, threading
import msgspec
from resile.model.workflow import Workflow
from resile.server import begin
begin._know_types()
sys.setswitchinterval(1e-6)
data = sys.stdin.buffer.read()
barrier = threading.Barrier(4)
def decode():
    barrier.wait()
    msgspec.json.decode(data, type=Workflow)
threads = [threading.Thread(target=decode) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_of_a_server_decode_only_types_that_are_known() -> None:
    """A server looks at all types before it has threads; without that about half of these processes crashed."""
    data = codec.encode(flow(*(Step(name=f"s{number}", action=Shell("true")) for number in range(50))))
    argv = [sys.executable, "-c", DECODES]
    codes = [subprocess.run(argv, input=data, timeout=120).returncode for _ in range(STARTS)]
    assert codes == [0] * STARTS
