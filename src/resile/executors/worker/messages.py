"""The messages between workers and servers; a worker calls, its server answers.

    POST /workers                  Introduction -> Welcome    who it is, what it has, which attempts it still holds
    POST /workers/ID/claim         Appeal -> Grant            how much is free; the server answers when it has work
    POST /workers/ID/reports       Reports -> Word            attempts that started, their output, how they ended
    POST /workers/ID/heartbeat     Beat -> Word               nothing new; a sign of life

The server gives each attempt that it assigns a token. If a worker reports a token that is no longer valid, the server
ignores the report and lists the token under `gone` in its answer; the worker then ends that attempt. A worker keeps the
end of an attempt, and may report it again, until the server lists the token under `recorded`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

LEASE_SECONDS = 15.0
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
LABEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/=-]{0,63}$"
SLOTS_MAX = 100_000
WAIT_SECONDS_MAX = 60.0
# A worker claims at least this many short attempts beyond its slots, so that it need not ask for each.
AHEAD = 64

Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
Label = Annotated[str, Meta(pattern=LABEL_PATTERN)]
Token = Annotated[str, Meta(min_length=1, max_length=64)]
Whole = Annotated[int, Meta(ge=0, le=2**62)]
Pairs = list[tuple[bytes, bytes]]
# The name of a segment of the launcher, if the server reads the output itself; empty if the worker sends it.
Segment = Annotated[str, Meta(pattern=r"^([0-9a-f]{1,64}-[0-9]{1,9}-[0-9]{1,9})?$")]


class SharedFolder(Struct, frozen=True, forbid_unknown_fields=True):
    """An output folder that worker and server see under the same path.

    The worker creates a file with this mark in its name. If the server finds the file, it sees the same folder.
    """

    path: Annotated[str, Meta(pattern="^/", max_length=4096)]
    mark: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]


class Introduction(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A worker introduces itself: `id` is from its last registration, `held` has the tokens of its attempts."""

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
    """The server has registered the worker under this id; the worker must end the attempts with tokens in `gone`."""

    id: str
    lease_seconds: float
    gone: list[str]


class Appeal(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A worker asks for attempts, for this many slots and this much memory.

    `held` lists the tokens that the worker has: the server takes back attempts whose assignment never arrived. The call
    of a full worker waits until the server has orders for it, or has recorded the end of one of its attempts.
    """

    slots: Annotated[int, Meta(ge=0, le=SLOTS_MAX)]
    memory_bytes: Whole | None = None
    wait_seconds: Annotated[float, Meta(ge=0, le=WAIT_SECONDS_MAX)] = 20.0
    held: list[Token] | None = None


class Profile(Struct, frozen=True):
    """The settings that all attempts of one epoch of a run share.

    `env` has the variables that the run adds to the worker's environment. `own_directory` says that the server made
    the directory for this run; if it does not exist on the worker, the worker makes one of its own. `python` is the
    path of the server's Python.
    """

    number: int
    run: int
    directory: bytes
    own_directory: bool
    env: Pairs
    secrets: list[bytes]
    python: bytes


class Assignment(Struct, frozen=True):
    """One attempt to run; `files` has the files that its arguments name: their paths at the server, their contents."""

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
    """The orders of a server to a worker; attempts are named by their tokens.

    `kill`: end these attempts. `gone`: these attempts no longer belong to the worker. `recorded`: the server has
    recorded the ends of these. `need`: send the output of these again from these offsets (stdout, stderr), then their
    ends. `drain`: claim no more, finish and exit.
    """

    kill: list[str]
    gone: list[str]
    recorded: list[str]
    need: dict[str, tuple[int, int]]
    drain: bool


class Grant(Struct, frozen=True):
    """The attempts that the server assigns, the profiles that they refer to, and orders."""

    attempts: list[Assignment]
    profiles: list[Profile]
    word: Word


class Start(Struct, frozen=True, forbid_unknown_fields=True):
    """An attempt started at `at`, in seconds since 1970. With a `segment` its output is in the shared folder."""

    token: Token
    at: float
    pid: int
    segment: Segment = ""


class Chunk(Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of an attempt's output, which begins at this offset of the stream."""

    token: Token
    stream: Literal["out", "err"]
    offset: Whole
    data: bytes


class End(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an attempt ended.

    `ended` and its fields are those of the executors' report Ended. `stopped`: the worker ended it because the worker
    itself stops.
    """

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
    """Starts, output and ends that the worker has not reported yet; the server reads the output before the ends."""

    starts: list[Start] = []
    output: list[Chunk] = []
    ends: list[End] = []


class Beat(Struct, frozen=True, forbid_unknown_fields=True):
    """A sign of life. `draining`: the worker claims no more. `leaving`: it exits now and holds no attempt."""

    draining: bool = False
    leaving: bool = False


class WorkerDocument(Struct, frozen=True):
    """A registered worker. `status` is `active`, `draining` or `lost`; `running` counts the attempts that it holds."""

    id: str
    name: str
    labels: list[str]
    slots: int
    memory_bytes: int
    gpus: int
    status: str
    running: int
    silent_seconds: float
