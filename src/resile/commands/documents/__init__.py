"""The JSON documents that commands print, as Structs: docs/json.md lists them.

base           shared by all documents          runs           a run, the list of runs, an event
failures       parked failures, judgements      dead_letters   dead letters, their statistics, redrives
answers        those of the other commands      catalogue      every document with its command

The document of `explain` is explain/report.py.
"""
