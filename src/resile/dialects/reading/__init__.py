"""What all front ends share to read a file: diagnostics, tables of keys, readers of values, durations."""
