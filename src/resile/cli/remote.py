"""`--server`: which commands a server answers."""

from __future__ import annotations

from resile.cli.parse import Call, refusal

# The commands that a server answers; a family by its first word.
REMOTE = frozenset(
    (
        *("run", "submit", "resume", "rerun", "reset", "cancel", "answer", "judge", "recover", "prune", "token"),
        *("dlq", "worker"),
        *("ls", "status", "logs", "events", "parked", "explain", "metrics", "graph", "mcp"),
    )
)
# The commands that would use another database than the rest, if they ignored the environment.
_OF_DATABASE = frozenset(("watch", "resources", "db check"))
_LOCAL_OPTIONS = {
    "credentials": "the server has credentials of its own",
    "changed": "what changed is found where the files are, with --db",
    "cached": "what changed is found where the files are, with --db",
}


def refuse_local(call: Call) -> None:
    """Refuse what a server does not answer; a server of the configuration is only for the commands that it answers."""
    name = call.command.name
    if call.db:
        raise refusal("--server and --db exclude each other", "a server has a database of its own")
    if name.split()[0] not in REMOTE:
        if call.text("server"):
            raise refusal(f"`resile {name}` works on this machine, not through a server", "leave out --server")
        if name in _OF_DATABASE:
            source = call.settings.sources["server"].removeprefix("$")
            hint = f"name the database with --db, or {'unset' if source == 'RESILE_SERVER' else 'change'} {source}"
            raise refusal(f"`resile {name}` works on a database, and {source} names a server", hint)
        return
    for option, hint in _LOCAL_OPTIONS.items():
        if call.flag(option):
            raise refusal(f"--{option} works on this machine, not through a server", hint)
