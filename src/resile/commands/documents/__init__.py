"""The JSON documents that commands print, as Structs: docs/json.md lists them.

base           what all share                   runs           a run, the list of runs, an event
failures       parked failures, judgements      dead_letters   dead letters, their statistics, redrives
answers        what the other commands print    catalogue      every document with its command

The document of `explain` is explain/report.py.
"""
