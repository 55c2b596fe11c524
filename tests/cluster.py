"""A private PostgreSQL from Debian's binaries, on a socket in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAMS = "/usr/lib/postgresql"
START_SECONDS_MAX = 60


class Cluster:
    """One server, which a test may stop and start; as user `postgres` when root, because it refuses to run as root."""

    def __init__(self, programs: Path, above: Path | None = None, *, fsync: bool = False) -> None:
        self._programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="resile-pg-", dir=above))
        self._as: list[str] = []
        if os.getuid() == 0:
            shutil.chown(self.folder, "postgres")
            self._as = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
        self._call("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        settings = ("listen_addresses = ''", f"unix_socket_directories = '{self.folder}'", f"fsync = {fsync}")
        (self.folder / "data" / "postgresql.auto.conf").write_text("".join(f"{line}\n" for line in settings))
        self.start()

    def url(self, schema: str = "resile") -> str:
        """The address of a store in it."""
        return f"postgresql://postgres@/postgres?host={self.folder}&schema={schema}"

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        log = str(self.folder / "log")
        self._call("pg_ctl", "-w", "-t", str(START_SECONDS_MAX), "-l", log, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server, and wait until it has gone."""
        self._call("pg_ctl", "-w", "-m", mode, "stop")

    def remove(self) -> None:
        """Stop the server for good, and delete its folder."""
        self.stop("immediate")
        shutil.rmtree(self.folder)

    @contextmanager
    def pooled(self, mode: str, *more: str) -> Iterator[str]:
        """The address of the server behind a PgBouncer with this mode and settings, without a schema."""
        program = shutil.which("pgbouncer")
        if program is None:
            missing = "PgBouncer is not installed (on Debian: apt-get install pgbouncer)"
            assert not os.environ.get("CI"), missing
            pytest.skip(missing)
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        (folder / "users").write_text('"postgres" ""\n')
        (folder / "settings").write_text(
            f"[databases]\npostgres = host={self.folder} dbname=postgres\n[pgbouncer]\nlisten_addr =\n"
            f"unix_socket_dir = {folder}\nauth_type = trust\nauth_file = {folder}/users\npool_mode = {mode}\n"
            + "".join(f"{line}\n" for line in more)
        )
        if os.getuid() == 0:
            for name in (folder, folder / "users", folder / "settings"):
                shutil.chown(name, "postgres")
        process = subprocess.Popen([*self._as, program, str(folder / "settings")], stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            said = iter(process.stderr.readline, "")
            assert any("process up" in line for line in said), "PgBouncer does not start"
            yield f"postgresql://postgres@/postgres?host={folder}&port=6432"
        finally:
            process.kill()
            process.wait()
            process.stderr.close()

    def _call(self, program: str, *words: str) -> None:
        command = [*self._as, str(self._programs / program), "-D", str(self.folder / "data"), *words]
        # The server inherits the descriptors, so a pipe would never end.
        with tempfile.TemporaryFile() as said:
            code = subprocess.run(command, cwd=self.folder, stdout=said, stderr=said).returncode
            said.seek(0)
            assert code == 0, said.read().decode()


def installed() -> Path | None:
    """The folder of the newest binaries; None where there are none."""
    found = sorted(Path(PROGRAMS).glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextmanager
def private_cluster() -> Iterator[Cluster]:
    """A cluster for the time of a block; where the binaries are missing the test is skipped, or fails in CI."""
    programs = installed()
    if programs is None:
        missing = "PostgreSQL is not installed (on Debian: apt-get install postgresql)"
        assert not os.environ.get("CI"), missing
        pytest.skip(missing)
    cluster = Cluster(programs)
    try:
        yield cluster
    finally:
        cluster.remove()
