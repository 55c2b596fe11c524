"""The commands that every surface offers. A surface holds a `Client`, whose methods are the commands.

client        one open store, and the commands  documents     the JSON that commands print
load          compile and check files           run           run, resume, rerun, reset, cancel
inspect       status, events and explain        logs          the output of steps
judge         parked failures                   metrics       how often each rule fired
dead_letters  list, count and remove them       redrive       run dead letters again
migrate       any dialect to a native file      rehearse      one step's rules against a simulated failure
events        the types of events
"""
