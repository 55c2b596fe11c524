"""The limits of one evaluation. CPU time is that of the helper; wall time is how long the engine waits.

    variables 50 ms CPU -> code 25 ms CPU, by QuickJS -> 60 ms CPU, by the kernel

The kernel ends code that takes too much CPU time, so a helper that does not answer is just waiting for a CPU. While it
is silent, the engine checks every 140 ms whether a signal has stopped it, and replaces a stopped one. After 10 s of
silence the engine asks another helper.

The helper imports this file, too, so the file imports nothing.
"""

CODE_CPU_SECONDS_MAX = 0.025
VARIABLES_CPU_SECONDS_MAX = 0.05
KERNEL_CPU_SECONDS = 0.06
SILENCE_SECONDS = 0.14
PATIENCE_SECONDS = 10.0
# How many helpers may be silent, or die, over one request.
SILENCES_MAX = 5
LOSSES_MAX = 2
HELPERS_MAX = 4
START_SECONDS_MAX = 10.0

VARIABLES_BYTES_MAX = 512 * 1024
RESULT_BYTES_MAX = 256 * 1024
PROBLEM_CHARACTERS_MAX = 500

MEMORY_BYTES_MAX = 16 * 1024 * 1024
STACK_BYTES_MAX = 256 * 1024
ADDRESS_SPACE_BYTES_MAX = 512 * 1024 * 1024
DESCRIPTORS_MAX = 8
INHERITED_DESCRIPTORS_MAX = 65_536
CHECKS_KEPT = 10_000
