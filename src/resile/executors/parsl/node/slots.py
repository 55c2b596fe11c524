"""Decides how many attempts run at once on a node: a number, or as many as fit into the node's allocation.

    4                       four
    fit:CPUS:MIB:GPUS:MAX   as many as have these CPUs, this memory and these GPUs each, at most MAX; 0 is no request

Only modules of Python itself are imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

FIT = "fit"


def fit_word(cpus: float, memory_bytes: int, gpus: int, slots_max: int) -> str:
    """The `fit:` word for attempts that need this much each."""
    return f"{FIT}:{cpus:g}:{-(-memory_bytes // 2**20)}:{gpus}:{slots_max}"


def slots_on_node(word: str, env: Mapping[str, str]) -> int:
    """The number of attempts that run at once here.

    It is at least one, so that an attempt that asks for too much fails here and does not wait for ever.
    """
    if not word.startswith(FIT):
        return int(word)
    cpus, mebibytes, gpus, slots_max = (float(part) for part in word.split(":")[1:])
    here = _number(env, "SLURM_CPUS_ON_NODE") or len(os.sched_getaffinity(0))
    counts = [int(here // max(cpus, 1.0))]
    memory = _number(env, "SLURM_MEM_PER_NODE") or here * _number(env, "SLURM_MEM_PER_CPU") or _memory_mebibytes()
    if mebibytes:
        counts.append(int(memory // mebibytes))
    if gpus:
        counts.append(int(_number(env, "SLURM_GPUS_ON_NODE") // gpus))
    if slots_max:
        counts.append(int(slots_max))
    return max(1, min(counts))


def _number(env: Mapping[str, str], name: str) -> float:
    """A number from one of Slurm's environment variables; 0 if it is not set."""
    text = env.get(name, "")
    return float(text) if text.isdigit() else 0.0


def _memory_mebibytes() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
