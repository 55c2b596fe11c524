"""One run in PostgreSQL against the same run in SQLite, both on the same disk and both with synced commits."""

from __future__ import annotations

from bench.cases import Bench, Figure, all_completed, compare, interleave
from bench.measure import CommandFailed
from bench.shapes import Shape, commands
from tests.cluster import Cluster, installed


def postgres(bench: Bench) -> list[Figure]:
    """Independent steps, two at a time; the server runs on this machine and stays up."""
    programs = installed()
    if programs is None:
        raise CommandFailed("not installed: PostgreSQL (on Debian: apt-get install postgresql)")
    shape = Shape("wide", 1, bench.wide)
    sqlite = commands(shape, bench.folder, bench.resile)["resile"]
    cluster = Cluster(programs, bench.folder.parent, fsync=True)
    try:
        tools = {"sqlite": sqlite, "resile": [*sqlite, "--db", cluster.url()]}
        samples = interleave(bench, tools, bench.rounds, all_completed(shape.jobs))
    finally:
        cluster.remove()
    bounds = {"wall": 1.5, "cpu": 0.0}
    return [
        compare("postgres", what, samples, f"{what}_seconds", "sqlite", bound, "resile")
        for what, bound in bounds.items()
    ]
