"""The parts that all front ends share: diagnostics, key tables, readers of values, durations."""
