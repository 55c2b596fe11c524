"""What Resile costs, measured against the floors it is held to; `python -m bench --help` says how to run it.

shapes    the same graph of `true` as a Resile, ninja, make, xargs and plain Python job
measure   wall and CPU time of a whole process tree
cases     which commands are timed, in which order, and the bounds they must keep
services  servers as processes, ours and a bare one
report    the table and the JSON document
"""
