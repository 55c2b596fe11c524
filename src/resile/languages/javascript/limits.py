"""The limits of one evaluation. CPU time is that of the helper; wall time is how long the engine waits.

    variables 50 ms CPU -> code 25 ms CPU, by QuickJS -> 60 ms CPU, by the kernel

The kernel judges how long code takes, so a silent helper only waits for the machine. The engine looks every 140 ms
and replaces it if it was stopped; otherwise it waits for up to 10 s before it asks another one.

The helper imports this file too, so it imports nothing.
"""

CODE_CPU_SECONDS_MAX = 0.025
VARIABLES_CPU_SECONDS_MAX = 0.05
KERNEL_CPU_SECONDS = 0.06
SILENCE_SECONDS = 0.14
PATIENCE_SECONDS = 10.0
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
