"""Workflows for torture: each step writes down every time it runs, so that a run can be judged afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

# A step says first which attempt it is, outside of every disk that is tortured, and then prints the same text.
SAY = 'w="$RESILE_RUN_ID:$RESILE_JOB_ID:$RESILE_ATTEMPT_ID"; echo "$w" >> "$EFFECTS"; echo "$w"'
# More than disturbances can use up, so that a killed step is always tried again.
RETRY = "{max: 9, backoff: {type: fixed, initial: 10ms}}"


class Block(NamedTuple):
    """A part of a workflow: its steps as YAML, and how often each of them must run to its own end, by name."""

    text: str
    runs: dict[str, int]
    files: dict[str, str] = {}


def plain(name: str, chance: random.Random) -> Block:
    """One command that takes a moment, and one that needs its output as a value."""
    after = f"{name}-after"
    text = (
        f"  {name}: {{shell: '{SAY}; sleep 0.{chance.randrange(10):02}', retry: {RETRY}}}\n"
        f"  {after}:\n    needs: [{name}]\n    retry: {RETRY}\n"
        f"    shell: '{SAY}; case ${{steps.{name}.output}} in [0-9]*:*[0-9]) ;; *) echo BAD >> \"$EFFECTS\";; esac'\n"
    )
    return Block(text, {name: 1, after: 1})


def chain(name: str, chance: random.Random) -> Block:
    """Short commands one after the other: the launcher starts each before the engine knows that it may."""
    length = chance.randint(3, 8)
    names = [f"{name}-{n}" for n in range(length)]
    lines = [
        f"  {one}: {{shell: '{SAY}', retry: {RETRY}{f', needs: [{names[n - 1]}]' if n else ''}}}\n"
        for n, one in enumerate(names)
    ]
    return Block("".join(lines), dict.fromkeys(names, 1))


def flaky(name: str, chance: random.Random) -> Block:
    """A command that fails a few times by its own count of runs, which are told from each other by files."""
    failures = chance.randint(1, 3)
    text = (
        f"  {name}:\n    retry: {RETRY}\n"
        f"    shell: '{SAY}; echo x >> $COUNTS/{name}; test $(wc -l < $COUNTS/{name}) -gt {failures}'\n"
    )
    # A lost attempt may have counted or not, so only the least number of runs is known.
    return Block(text, {name: -1})


def repaired(name: str, chance: random.Random) -> Block:
    """A command whose handler makes what it lacks."""
    text = (
        f"  {name}:\n    shell: '{SAY}; test -e $COUNTS/{name}'\n"
        f"    on_failure:\n      max_attempts: 9\n      commands:\n"
        f"        - shell: 'sleep 0.0{chance.randrange(5)}; touch $COUNTS/{name}'\n"
    )
    return Block(text, {name: -1})


def fan(name: str, chance: random.Random) -> Block:
    """A map over items, and a step that needs all results; the program that reads the items may be killed, too."""
    items, after = chance.randint(2, 30), f"{name}-after"
    text = (
        f"  {name}:\n    retry: {RETRY}\n    map:\n      input: {name}.jsonl\n      steps:\n"
        f"        - {{id: {name}-item, shell: '{SAY}; test ${{item.n}} -ge 0', retry: {RETRY}}}\n"
        f"  {after}:\n    needs: [{name}]\n    retry: {RETRY}\n"
        f"    shell: '{SAY}; test ${{steps.{name}.successful}} = {items} || echo BAD >> \"$EFFECTS\"'\n"
    )
    lines = "".join(f'{{"n": {n}}}\n' for n in range(items))
    return Block(text, {f"{name}-item": items, after: 1}, {f"{name}.jsonl": lines})


def child(name: str, _: random.Random) -> Block:
    """Another file as a step."""
    inner = f"{name}-inner"
    file = f"resile: 1\nname: {inner}\nsteps:\n  {inner}: {{shell: '{SAY}', retry: {RETRY}}}\n"
    return Block(f"  {name}: {{workflow: {inner}.yaml}}\n", {inner: 1}, {f"{inner}.yaml": file})


def decided(name: str, _: random.Random) -> Block:
    """Conditions: one that holds and one that does not, each computed from an output."""
    yes, no = f"{name}-yes", f"{name}-no"
    when = f"when: 'outputs[\"{name}\"].length > 0', needs: [{name}]"
    never = f"when: 'outputs[\"{name}\"].length == 0', needs: [{name}]"
    text = (
        f"  {name}: {{shell: '{SAY}', retry: {RETRY}}}\n"
        f"  {yes}: {{shell: '{SAY}', {when}, retry: {RETRY}}}\n"
        f"  {no}: {{shell: '{SAY}', {never}, retry: {RETRY}}}\n"
    )
    return Block(text, {name: 1, yes: 1, no: 0})


def file(name: str, _: random.Random) -> Block:
    """A file that is written by Resile and read by a step."""
    after = f"{name}-after"
    text = (
        f"  {name}: {{write_file: {{path: {name}.txt, content: 'text of {name}'}}, retry: {RETRY}}}\n"
        f"  {after}:\n    needs: [{name}]\n    retry: {RETRY}\n"
        f'    shell: \'{SAY}; test "$(cat {name}.txt)" = "text of {name}" || echo BAD >> "$EFFECTS"\'\n'
    )
    return Block(text, {after: 1})


def slow(name: str, _: random.Random) -> Block:
    """A command that its time limit ends, which the file tolerates."""
    text = f"  {name}: {{shell: '{SAY}; exec sleep 100', timeout: 1s, on_failure: true}}\n"
    return Block(text, {name: -1})


def loop(name: str, _: random.Random) -> Block:
    """A jump back, twice."""
    text = (
        f"  {name}: {{shell: '{SAY}; echo x >> $COUNTS/{name}', retry: {RETRY}}}\n"
        f"  {name}-judge:\n    needs: [{name}]\n"
        f"    shell: '{SAY}; test $(wc -l < $COUNTS/{name}) -gt 2'\n"
        f"    on_fail: {{goto: {name}}}\n"
    )
    return Block(text, {name: -1, f"{name}-judge": -1})


BLOCKS: tuple[Callable[[str, random.Random], Block], ...] = (
    plain, chain, flaky, repaired, fan, child, decided, file, slow, loop,
)  # fmt: skip

FUNCTIONS = """
import os
from resile import Workflow, step

@step
def put(number):
    with open(os.environ["EFFECTS"], "a") as file:
        file.write(f"call:{number}\\n")
    return number

@step
def total(numbers):
    return sum(numbers)

with Workflow("torture", max_parallel=2, workers=WORKERS) as flow:
    total([put(number) for number in range(CALLS)])
"""


class Workflow(NamedTuple):
    """A workflow with its files, and how often each step must run to its own end; -1 means at least once."""

    files: dict[str, str]
    runs: dict[str, int]
    # How many functions are called, where the workflow is in Python.
    calls: int = 0


def function_workflow(chance: random.Random) -> Workflow:
    """Functions that worker processes call, or threads."""
    calls = chance.randint(10, 80)
    text = FUNCTIONS.replace("CALLS", str(calls)).replace("WORKERS", repr(chance.choice(("processes", "threads"))))
    return Workflow({"flow.py": text}, {}, calls)


def random_workflow(chance: random.Random) -> Workflow:
    """Some blocks, beside each other and after each other."""
    files: dict[str, str] = {}
    runs: dict[str, int] = {}
    text = f"resile: 1\nname: torture\nmax_parallel: {chance.randint(1, 6)}\nrouting: {{max_loops: 200}}\nsteps:\n"
    for number in range(chance.randint(3, 9)):
        block = chance.choice(BLOCKS)(f"b{number}", chance)
        text += block.text
        runs |= block.runs
        files |= block.files
    text += f"  end: {{shell: '{SAY}', retry: {RETRY}}}\n"
    return Workflow({"flow.yaml": text, **files}, {**runs, "end": 1})
