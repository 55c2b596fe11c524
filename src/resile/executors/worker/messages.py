"""What workers and servers tell each other; a worker asks, its server answers.

    POST /workers                  Introduction -> Welcome    who it is, what it has, which attempts it still holds
    POST /workers/ID/claim         Appeal -> Grant            so much is free: answered as soon as there is work for it
    POST /workers/ID/reports       Reports -> Word            attempts that started, their output, how they ended
    POST /workers/ID/heartbeat     -> Word                    nothing new

An attempt that a worker holds has a token. A report with a token that does not count any more changes nothing; the
answer names the token as `gone`, and the worker ends that attempt. A worker keeps an end until it is `recorded`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

LEASE_SECONDS = 15.0
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
LABEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/=-]{0,63}$"
SLOTS_MAX = 100_000
WAIT_SECONDS_MAX = 60.0
# How many short attempts a worker takes beyond its slots, so that it need not ask for each.
AHEAD = 64

Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
Label = Annotated[str, Meta(pattern=LABEL_PATTERN)]
Token = Annotated[str, Meta(min_length=1, max_length=64)]
Whole = Annotated[int, Meta(ge=0, le=2**62)]
Pairs = list[tuple[bytes, bytes]]
# The name of a segment of the launcher, where a server reads the output itself; empty where it is sent.
Segment = Annotated[str, Meta(pattern=r"^([0-9a-f]{1,64}-[0-9]{1,9}-[0-9]{1,9})?$")]


class SharedFolder(Struct, frozen=True, forbid_unknown_fields=True):
    """A folder for output that worker and server see under this path; the file of this mark in it shows that."""

    path: Annotated[str, Meta(pattern="^/", max_length=4096)]
    mark: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]


class Introduction(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A worker and what it has; `id` is the one that it had before, `held` are the tokens of its attempts."""

    name: Name
    slots: Annotated[int, Meta(ge=1, le=SLOTS_MAX)] = 1
    labels: list[Label] = []
    cpus: Annotated[float, Meta(ge=0)] | None = None
    memory_bytes: Whole | None = None
    gpus: list[str] = []
    id: Annotated[str, Meta(max_length=100)] = ""
    held: list[Token] = []
    shared_output: SharedFolder | None = None


class Welcome(Struct, frozen=True):
    """The worker is known by this id; it is to end the attempts with the tokens in `gone`."""

    id: str
    lease_seconds: float
    gone: list[str]


class Appeal(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """So much is free. With `held` the server takes back what it gave and the worker never got.

    With no free slots the worker waits for a word, or for the slot of an attempt whose end it reports meanwhile.
    """

    slots: Annotated[int, Meta(ge=0, le=SLOTS_MAX)]
    memory_bytes: Whole | None = None
    wait_seconds: Annotated[float, Meta(ge=0, le=WAIT_SECONDS_MAX)] = 20.0
    held: list[Token] | None = None


class Profile(Struct, frozen=True):
    """What the attempts of one epoch of a run share.

    `env` is what the run adds to the environment of the worker. A run with its `own_directory` has a folder that the
    server made for it; where that does not exist the worker makes another one. `python` is that of the server.
    """

    number: int
    run: int
    directory: bytes
    own_directory: bool
    env: Pairs
    secrets: list[bytes]
    python: bytes


class Assignment(Struct, frozen=True):
    """One attempt to run; `files` are those that its arguments name, by the path that they have there."""

    token: str
    profile: int
    run: int
    epoch: int
    job: int
    attempt: int
    argv: list[bytes]
    fallback: list[bytes]
    env: Pairs
    cwd: bytes
    timeout_seconds: float
    grace_seconds: float
    memory_bytes: int
    share_memory_bytes: int
    files: list[tuple[bytes, bytes]]


class Word(Struct, frozen=True):
    """What a server tells a worker, by the tokens of attempts.

    `kill`: end these. `gone`: these are the worker's no more. `recorded`: the ends of these are kept. `need`: the
    output of these is wanted from these offsets on (stdout, stderr), then their ends again. `drain`: finish and exit.
    """

    kill: list[str]
    gone: list[str]
    recorded: list[str]
    need: dict[str, tuple[int, int]]
    drain: bool


class Grant(Struct, frozen=True):
    """Attempts to run, with the profiles that they name."""

    attempts: list[Assignment]
    profiles: list[Profile]
    word: Word


class Start(Struct, frozen=True, forbid_unknown_fields=True):
    """An attempt runs since `at`, seconds since 1970; with a `segment` its output is in the shared folder."""

    token: Token
    at: float
    pid: int
    segment: Segment = ""


class Chunk(Struct, frozen=True, forbid_unknown_fields=True):
    """Output of an attempt, from this offset of the stream on."""

    token: Token
    stream: Literal["out", "err"]
    offset: Whole
    data: bytes


class End(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an attempt ended; for `ended` see the report Ended of executors. `stopped`: the worker stops and ended it."""

    token: Token
    kind: Literal["ended", "withdrawn", "stopped", "lost"]
    at: float
    started_at: float = 0.0
    pid: int = 0
    wait_status: int = 0
    cpu_seconds: float = 0.0
    rss_bytes_max: int = 0
    out_length: Whole = 0
    err_length: Whole = 0
    reason: str = ""
    spawn_error: int = 0
    spawn_stage: str = ""
    oom_kills: int = 0
    why: str = ""
    segment: Segment = ""


class Reports(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything new; the output of an attempt comes before its end."""

    starts: list[Start] = []
    output: list[Chunk] = []
    ends: list[End] = []


class Beat(Struct, frozen=True, forbid_unknown_fields=True):
    """A sign of life: the worker claims nothing more, or it leaves now and holds nothing."""

    draining: bool = False
    leaving: bool = False


class WorkerDocument(Struct, frozen=True):
    """A worker of a server: `status` is `active`, `draining` or `lost`; `running` counts the attempts that it holds."""

    id: str
    name: str
    labels: list[str]
    slots: int
    memory_bytes: int
    gpus: int
    status: str
    running: int
    silent_seconds: float
