"""The JSON documents that commands print, as Structs: docs/reference/json.md lists them.

base           shared by all documents          runs           a run, the list of runs, an event
answers        those of the other commands      dead_letters   dead letters, their statistics, redrives

The document of `explain` is explain/report.py.
"""
