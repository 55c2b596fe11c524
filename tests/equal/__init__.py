"""Two versions of Resile side by side: what they compile and what their runs do must be equal (`make equal`).

    files.py ── which files ──> compiling.py ── driver.py in both versions ──┐
        │                                                                    ├─> differences.py ──> __main__.py
        └────── those that compile ──> running.py ── `resile run` of both ───┘    accepted.py

Nothing here imports Resile: the driver does, in a process of its own for each version.
"""
