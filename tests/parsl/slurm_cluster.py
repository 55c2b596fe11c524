"""A private Slurm on loopback: munge, a controller and several nodes, all in a folder of their own."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.parsl.cluster_runs import missing, wait_for

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")

_CONF = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=400
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=50000,batch_sched_delay=0,bf_interval=1
InactiveLimit=0
MinJobAge=600
KillWait=5
UnkillableStepTimeout=60
SlurmctldTimeout=60
SlurmdTimeout=120
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
NodeName=n[1-{nodes}] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=2 Boards=1 \
SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=8000 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
PartitionName=closed Nodes=ALL MaxTime=INFINITE State=DOWN
"""


class SlurmCluster:
    """A Slurm of its own; `env` is what its commands need."""

    def __init__(self, folder: Path, nodes: int = 2) -> None:
        for program in PROGRAMS:
            if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
                missing("Slurm is not installed (on Debian: apt-get install slurmctld slurmd slurm-client munge)")
        self.folder = folder
        self.nodes = nodes
        self.conf = folder / "slurm.conf"
        self.env = {"SLURM_CONF": str(self.conf), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        """Start all daemons, and wait until the nodes are idle."""
        folder, port = self.folder, _free_ports(self.nodes + 1)
        folder.chmod(0o755)
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        munge = ("--key-file", "--socket", "--pid-file", "--log-file", "--seed-file")
        names = ("munge.key", "munge.socket", "munged.pid", "munged.log", "munge.seed")
        options = [f"{option}={folder / name}" for option, name in zip(munge, names, strict=True)]
        self.call("munged", "--force", *options)
        user = "root" if os.getuid() == 0 else os.environ.get("USER", "root")
        values = {"port": port, "first": port + 1, "last": port + self.nodes, "nodes": self.nodes, "user": user}
        self.conf.write_text(_CONF.format(folder=folder, **values))
        self.call("slurmctld", "-c", "-f", str(self.conf))
        for number in range(1, self.nodes + 1):
            (folder / f"spool-n{number}").mkdir()
            self.call("slurmd", "-N", f"n{number}", "-f", str(self.conf))
        wait_for("all nodes are idle", lambda: self.call("sinfo", "-h", "-N", "-t", "idle").count("\n") >= self.nodes)

    def call(self, *words: str) -> str:
        """Run one of Slurm's commands; what it printed."""
        path = shutil.which(words[0], path=self.env["PATH"]) or words[0]
        done = subprocess.run(
            [path, *words[1:]], env={**os.environ, **self.env}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def jobs(self, *states: str) -> list[tuple[str, str, str]]:
        """Id, name and node of the jobs in these states."""
        lines = self.call("squeue", "-h", "-t", ",".join(states) or "all", "-o", "%i %j %N").splitlines()
        found = [[*line.split(), "", ""][:3] for line in lines]
        return [(one, two, three) for one, two, three in found]

    def stop(self) -> None:
        """Stop all daemons, by their own processes."""
        subprocess.run(["scancel", "-u", "root"], env={**os.environ, **self.env}, capture_output=True, check=False)
        paths = [*self.folder.glob("slurmd-*.pid"), self.folder / "slurmctld.pid", self.folder / "munged.pid"]
        pids = [int(path.read_text()) for path in paths if path.exists()] + self._steps()
        # A slurmd waits for steps that it can't end.
        for number, seconds in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
            alive = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
            for pid in alive:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            with suppress(AssertionError):
                wait_for("all have ended", lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), seconds)

    def _steps(self) -> list[int]:
        """The processes that watch the steps of this cluster, by the configuration in their environment."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                command = Path(f"/proc/{name}/comm").read_text().strip()
                if command == "slurmstepd" and os.fsencode(self.folder) in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
        return found


def _free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first: int = probe.getsockname()[1]
        if first + count < 65000 and all(_is_free(first + offset) for offset in range(count)):
            return first


def _is_free(port: int) -> bool:
    """Can a port of loopback be bound?"""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
