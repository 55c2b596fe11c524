"""More rows of the table of commands (table.py): those of servers."""

from __future__ import annotations

from resile.cli.grammar import Command, Option
from resile.cli.table_daily import CAPACITY, CHOICE, COMPILE_OPTIONS, EXECUTOR, INPUTS, LIMITS

ROLES = ("viewer", "operator", "worker", "admin")
PORT_MAX = 65_535
SLOTS_MAX = 100_000
PRIORITY_MAX = 2**31 - 1

SERVER_COMMANDS = (
    Command(
        "server",
        "commands.server.serve:serve",
        "drive the runs of a database, and offer them over HTTP",
        about=(
            "Drives what `resile submit` and the API hand to it, many runs at a time. The first line on stdout is "
            "`listening on URL`, or with --json its url and pid; the log goes to stderr. Open to this machine only, "
            "and to its user, until a token exists; any other --host needs one. SIGTERM or Ctrl-C stops it within "
            "ten seconds: steps go on, and the next server adopts them; a second signal ends them."
        ),
        options=(
            Option("--host ADDRESS", "where to listen (127.0.0.1)"),
            Option("--port N", "where to listen (8700); 0 takes a free port", kind="whole", most=PORT_MAX),
            Option("--slots N", "run at most N steps at a time here (the CPUs)", kind="whole", most=SLOTS_MAX),
            Option("--output DIR", "folder for the output of steps", kind="folder"),
            Option("--token-file FILE", "more tokens: NAME ROLE SECRET on each line", kind="file"),
            Option("--tls-cert FILE", "a certificate, with its chain; then it speaks HTTPS", kind="file"),
            Option("--tls-key FILE", "the key of the certificate", kind="file"),
        ),
        examples=("resile server", "resile server --db team.db --port 0 --slots 8 --json"),
        exits=("0  stopped by a signal", "2  the address or the database is taken, or the call is wrong"),
    ),
    Command(
        "submit FILE",
        "commands.server.submit:submit",
        "hand a run to the server of the database",
        about=(
            "Checks FILE, stores the run and prints its number; a server of the database drives it, now or when it "
            "starts. Steps run in the current folder. With --wait it shows progress and exits as `resile run` does."
        ),
        options=(
            *INPUTS,
            *CHOICE,
            *CAPACITY,
            *LIMITS,
            EXECUTOR,
            *COMPILE_OPTIONS,
            Option(
                "--priority N", "runs with a higher one get free slots first (0)", kind="integer", most=PRIORITY_MAX
            ),
            Option("--key TEXT", "your name for the run: the same again gives the same run"),
            Option("--wait", "follow the run to its end"),
            Option("--output DIR", "folder for the output of steps", kind="folder"),
            Option("--debug", "print every event with its data; and tracebacks"),
        ),
        examples=("resile submit release.yaml", "resile submit release.yaml --input target=staging --wait"),
        exits=(
            "0  handed over; with --wait: the run completed",
            "1  with --wait: the run failed",
            "2  the file or the call is wrong; nothing was written",
            "3  with --wait: the run was canceled",
            "4  with --wait: failures wait for judgement",
            "130  with --wait: interrupted; the run goes on",
        ),
    ),
    Command(
        "worker",
        "commands.server.worker:work",
        "run steps that a server gives",
        about=(
            "Takes steps whose labels and resources it has, runs them and sends their output back. A server that is "
            "away finds all of it later. After SIGTERM or Ctrl-C it finishes what it has and exits; a second signal "
            "ends the steps, at no cost to their retries. Killed, it finds its steps again when it is started with the "
            "same folder within 15 seconds; after that they count as lost, and it ends them."
        ),
        options=(
            Option("--slots N", "run at most N steps at a time (the CPUs)", kind="count", most=SLOTS_MAX),
            Option("--memory SIZE", "memory for steps that ask for some, such as 8g"),
            Option("--gpus N", "GPUs for steps that ask for some", kind="whole", most=1024),
            Option("--label LABEL...", "take steps that `runs_on` these labels, too", many=True),
            Option("--directory DIR", "its own folder: what it holds, and where steps run", kind="folder"),
            Option("--shared-output DIR", "keep output there, not sent: the server sees this folder", kind="folder"),
            Option("--name NAME", "its name in lists and histories (the machine's)"),
            Option("--max-idle DURATION", "exit after this time without a step, such as 10m"),
        ),
        examples=(
            "resile worker --server http://127.0.0.1:8700",
            "resile worker --server https://ci.example --label gpu --token-file t",
        ),
        exits=(
            "0  finished after a signal or a drain, or idle for long enough",
            "1  its last results are not delivered; the next worker there does that",
            "2  the server refuses it, or the call is wrong",
        ),
    ),
    Command(
        "token create NAME",
        "commands.server.tokens:create",
        "make a token for the server, and show its secret once",
        about="Once a token exists, every request needs one, also on this machine.",
        options=(
            Option("--role ROLE", "viewer reads, operator also acts, worker runs steps, admin all", choices=ROLES),
            Option("--expires DURATION", "it counts no longer than this, such as 30d"),
        ),
        examples=("resile token create ci --role operator --expires 30d",),
        exits=("0  made", "2  there is one of this name, or the call is wrong"),
    ),
    Command(
        "token ls",
        "commands.server.tokens:list_all",
        "list the tokens without their secrets",
        examples=("resile token ls",),
        exits=("0  listed", "2  the call is wrong"),
    ),
    Command(
        "token revoke NAME",
        "commands.server.tokens:revoke",
        "revoke a token; servers refuse it within five seconds",
        examples=("resile token revoke ci",),
        exits=("0  revoked", "2  there is no such token, or the call is wrong"),
    ),
    Command(
        "slurm status [RUN]",
        "commands.cluster.slurm:status",
        "show the allocations of Slurm that runs have",
        about="Allocations that a killed engine left, and that have nothing left to do, are canceled.",
        examples=("resile slurm status", "resile slurm status 7 --json"),
        exits=("0  shown", "2  there is no such run, Slurm's commands are not here, or the call is wrong"),
    ),
    Command(
        "slurm cancel RUN",
        "commands.cluster.slurm:cancel",
        "cancel the allocations of a run; what ran there is tried again by its engine",
        examples=("resile slurm cancel 7",),
        exits=("0  canceled, or there was none", "2  there is no such run, or the call is wrong"),
    ),
)
