"""The limits of one evaluation. CPU time is that of the helper; wall time is how long the engine waits.

    variables 50 ms CPU -> code 25 ms CPU, by QuickJS -> 60 ms CPU, by the kernel -> 140 ms wall, by the engine

That leaves 10 ms of the promised 150 for replacing a silent helper. A helper is silent only on a machine that is too
busy, so the engine asks another one, a few times.

The helper imports this file too, so it imports nothing.
"""

CODE_CPU_SECONDS_MAX = 0.025
VARIABLES_CPU_SECONDS_MAX = 0.05
KERNEL_CPU_SECONDS = 0.06
EVALUATION_SECONDS_MAX = 0.14
SILENCES_MAX = 5
LOSSES_MAX = 2
CHECK_SECONDS_MAX = 5.0
START_SECONDS_MAX = 5.0

VARIABLES_BYTES_MAX = 512 * 1024
RESULT_BYTES_MAX = 256 * 1024
PROBLEM_CHARACTERS_MAX = 500

MEMORY_BYTES_MAX = 16 * 1024 * 1024
STACK_BYTES_MAX = 256 * 1024
ADDRESS_SPACE_BYTES_MAX = 512 * 1024 * 1024
DESCRIPTORS_MAX = 8
INHERITED_DESCRIPTORS_MAX = 65_536
CHECKS_KEPT = 10_000
