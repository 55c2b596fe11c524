"""Programs that read code: for each, where the code stands in its words, and when it reads its standard input.

A row says which words of a program are code: those behind an option, or the operands from a number on. A program with
several kinds of code has several rows. interpreters.py reads commands with these tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Row(Struct, frozen=True):
    """One kind of code of a program, named by the form that HINTS knows."""

    form: str
    option: str = ""
    """The options behind which code stands, as a pattern."""
    only: str = ""
    """The code is code only where this pattern is found in it, as `alias.` behind `git -c`."""
    commands: frozenset[str] = frozenset()
    """The program's own commands, one of which must be an operand: the one before `operands`."""
    operands: int = -1
    """The operands from this one on are code."""
    is_rest: bool = False
    """All words behind the option are code."""


class Program(Struct, frozen=True):
    """A program that reads code. `takes` are its options with an argument."""

    rows: tuple[Row, ...] = ()
    takes: frozenset[str] = frozenset()
    has_script: bool = False
    """The first operand is a script; what follows are the arguments of the script."""
    reads: str = ""
    """The form in which it reads its standard input: unless it has code in its words, or a script."""
    needs_dash: bool = False
    """It reads its standard input only where a `-` or `/dev/stdin` says so."""
    file: str = ""
    """The options behind which a file with code stands, as a pattern."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _language(form: str, option: str, takes: str = "", file: str = "") -> Program:
    """A language whose code stands behind an option, in a script, or in the standard input."""
    return Program((Row(form, option),), _words(takes), has_script=True, reads=form, file=file)


def _sql(form: str, option: str, takes: str, operands: int = -1) -> Program:
    """A client of a database, whose operands but for the code are names."""
    rows = (Row(form, option), Row(form, operands=operands)) if operands >= 0 else (Row(form, option),)
    return Program(rows, _words(takes), reads=form, file=r"-f|--file|-init")


_SU = r"-c|--command|--session-command"
_MYSQL = _sql("SQL", r"-e|--execute|--init-command", "-h -u -P -S -D")
_DENO = _words("eval")
_TMUX = _words(
    """send-keys send new-session new split-window splitw new-window neww run-shell run respawn-pane respawnp
    respawn-window respawnw if-shell if pipe-pane pipep display-popup popup"""
)
_PARALLEL = _words("-j --jobs -S --sshlogin -a --arg-file -I -L -n -N -d --delay --colsep --joblog --results --tmpdir")
_NODE = _language("node -e", r"-p?e|-p|--eval|--print", "-r --require")
_R_ALONE = Program((Row("R -e", r"-e"),), _words("-g"), reads="R -e", file=r"-f|--file")
_SSH_OPTION = r"(?i)^(?:-o)?\s*(?:Proxy|Local|Remote|KnownHosts)Command\b|^(?:-o)?\s*Match\b"
_GIT_SETTING = (
    r"(?i)^(?:--config=|-c)?(?:alias\.|core\.(?:pager|editor|sshCommand|fsmonitor|hooksPath|gitProxy)"
    r"|pager\.|diff\.external|\w+\.\S*(?:command|cmd|driver|program|helper)\b|filter\.|sequence\.editor)"
)

PROGRAMS: Mapping[str, Program] = {
    "perl": _language("perl -e", r"-[A-Za-z0-9.]*[eE]", "-I"),
    "ruby": _language("ruby -e", r"-[A-Za-z0-9.]*e", "-I -r -C"),
    "node": _NODE,
    "nodejs": _NODE,
    "bun": _language("node -e", r"-p?e|-p|--eval|--print", "-r --preload --cwd"),
    "deno": Program((Row("deno eval", commands=_DENO, operands=1),)),
    "php": _language("php -r", r"-r|-B|-R|-E|--run", "-d -c -z", file=r"-f|--file"),
    "lua": _language("lua -e", r"-e", "-l"),
    "luajit": _language("lua -e", r"-e", "-l"),
    "R": _R_ALONE,
    "Rscript": Program((Row("R -e", r"-e"),), has_script=True, reads="R -e", needs_dash=True),
    "julia": _language("julia -e", r"-e|-E|--eval|--print", "-p -t -J -L -C -H --project"),
    "octave": _language("octave --eval", r"--eval", "-p --path"),
    "matlab": Program((Row("matlab -batch", r"-batch|-r"),)),
    "gnuplot": _language("gnuplot -e", r"-e"),
    "pwsh": Program((Row("pwsh -c", r"(?i)-c(?:ommand)?", is_rest=True),), has_script=True, reads="pwsh -c",
                    file=r"(?i)-f(?:ile)?"),
    "nu": _language("nu -c", r"-c|--commands|-e|--execute", "--config"),
    "su": Program((Row("su -c", _SU),), reads="su -c"),
    "runuser": Program((Row("su -c", _SU),)),
    "sg": Program((Row("su -c", _SU), Row("su -c", operands=1))),
    "flock": Program((Row("flock -c", r"-c|--command"),)),
    "script": Program((Row("script -c", r"-[a-z]*c|--command"),)),
    "sqlite3": _sql("SQL", r"-cmd", "-separator -newline -nullvalue -init", operands=1),
    "duckdb": _sql("SQL", r"-c|-cmd|-s", "-separator -newline -nullvalue -init", operands=1),
    "psql": _sql("psql", r"-[A-Za-z0-9]*c|--command", "-d -h -p -U -v -o -L -F -R -P -T"),
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "make": Program((Row("make --eval", r"--eval|-E"),), _words("-C -I -j -o -W"), reads="make --eval",
                    needs_dash=True),
    "sbatch": Program((Row("sbatch --wrap", r"--wrap"),), _words("-J -p -A -t -n -N -c -o -e -d -D -a -w -x -q -L -M"),
                      has_script=True, reads="sh"),
    "git": Program((
        Row("git", r"-c|--config", only=_GIT_SETTING),
        Row("git", r"-x|--exec", commands=_words("rebase")),
        Row("git", r"--[a-z]+-filter", commands=_words("filter-branch")),
        Row("git", commands=_words("foreach"), operands=2),
    ), _words("-c -C --git-dir --work-tree --namespace --exec-path")),
    "tar": Program((
        Row("tar", r"--to-command|-I|--use-compress-program|-F|--info-script|--new-volume-script|--rsh-command"),
        Row("tar", r"--checkpoint-action", only=r"exec="),
    )),
    "rsync": Program((Row("ssh -o", r"-e|--rsh|--rsync-path"),)),
    "ssh": Program((Row("ssh -o", r"-o", only=_SSH_OPTION),)),
    "scp": Program((Row("ssh -o", r"-o", only=_SSH_OPTION), Row("ssh -o", r"-S"))),
    "sftp": Program((Row("ssh -o", r"-o", only=_SSH_OPTION), Row("ssh -o", r"-S"))),
    "tmux": Program((Row("tmux", commands=_TMUX, operands=1),), _words("-t -s -n -c -x -y -F -L -S -f -e -T")),
    "parallel": Program((), _PARALLEL),
}  # fmt: skip
"""By the name of the program."""

SHELLS = _words(
    """sh bash dash zsh mksh ksh ash fish tcsh csh ksh93 rksh ksh93u lksh oksh posh yash rbash rzsh rksh93 bosh osh
    bash-static zsh-static mksh-static"""
)
WRAPPERS = _words(
    """sudo doas env nohup timeout nice ionice setsid stdbuf time xargs exec command builtin chroot busybox docker
    podman kubectl chronic unbuffer flock find ssh srun mpirun mpiexec singularity apptainer conda mamba micromamba
    taskset numactl proot unshare nsenter systemd-run torify strace ltrace gdb valgrind caffeinate toybox"""
)
"""Programs that run the command in their words."""
NAMED_NEXT = _words("--name --network --net --hostname --link --volumes-from -h")
"""Options of them behind which a word stands that may look like a program."""
