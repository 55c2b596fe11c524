"""Contexts in which an interpreter reads the value through groups, functions, descriptors, files and substitutions."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

from tests.languages.shell.fuzz.contexts import ALL, ARRAYS, Context, held, second

_ARGUMENT = "echo 'echo \"$1\"' | sh -s -- ${v}"
_FILE = "echo 'echo \"$1\"' > f.sh; sh f.sh ${v}"
_BASH = ("bash",)


def _rows(hint: str, safe: str, shells: tuple[str, ...], *texts: str) -> tuple[Context, ...]:
    return tuple(second(text, safe, hint, shells) for text in texts)


READERS = (
    *_rows("sh -s -- ", _ARGUMENT, ARRAYS, "echo ${v} > >(bash)", "echo ${v} | tee >(sh)", "echo ${v} | tee >(cat) >(sh -s) >/dev/null",
           "exec 3< <(echo ${v}); bash <&3", "exec 3<<< ${v}; bash <&3", "exec < <(echo ${v}); bash", "exec <<< ${v}; sh",
           "f() { sh <<< \"$1\"; }; f ${v}", "while true; do sh; break; done < <(echo ${v})", "{ sh; } <<< ${v}",
           'x=${v}; echo "$x" > >(bash)'),
    *_rows("sh -s -- ", _ARGUMENT, ALL, "f() { echo ${v}; }; f | sh", "f() { cat <<E_O_X\n${v}\nE_O_X\n}\nf | sh",
           'x=${v}; f() { echo "$x"; }; f | sh', "f() { sh; }; echo ${v} | f", "echo ${v} | if true; then sh; fi",
           "echo ${v} | { cd /; sh; }", "echo ${v} | (cd / && sh)", "echo ${v} | (cd /; { true; sh -s; })",
           "{ sh; } <<E_O_X\necho ${v}\nE_O_X\n", "f() { g; }; g() { echo ${v}; }; f | sh", "exec 3<<E_O_X\n${v}\nE_O_X\nsh <&3"),
    *_rows("sh -s -- ", _ARGUMENT, _BASH, "function f { echo ${v}; }; f | sh"),
    *_rows("x=${v}", "x=${v}; . <(echo 'echo \"$x\"')", ARRAYS, 'x=${v}; . <(echo "$x")', 'x=${v}; source <(cat <<< x; echo "$x")'),
    *_rows("sh -c '", "bash <(echo 'echo \"$1\"') ${v}", ARRAYS, 'x=${v}; bash <(echo "$x")'),
    held("echo ${v} > >(tee log >/dev/null)", _BASH),
    held("exec 3< <(echo ${v}); cat <&3; sh ./no-such-script", _BASH),
    held("f() { echo ${v}; }; f | cat; echo true | sh"),
    held("f() { echo ${v}; }; f; sh ./no-such-script"),
    held("echo ${v} | if true; then cat; fi; echo true | sh"),
    held("echo ${v} | if true; then sh ./no-such-script; fi"),
    held("echo ${v} | while read -r x; do sh <<'E_O_X'\ntrue\nE_O_X\ndone"),
    held("echo ${v} | python3 - <<'E_O_X'\nimport sys\nE_O_X\n"),
)  # fmt: skip
FILES = (
    *_rows("sh FILE ${v}", _FILE, ("dash",), "echo ${v} > f.sh; sh f.sh", "echo ${v} > f.sh; . ./f.sh", "echo ${v} >> f.sh; sh < f.sh",
           "cat > f.sh <<E_O_X\necho ${v}\nE_O_X\nsh f.sh", "cat > f.sh <<'E_O_X'\necho ${v}\nE_O_X\nchmod +x f.sh; ./f.sh",
           "cat > f.py <<E_O_X\nprint(${v})\nE_O_X\npython3 f.py", "cat > f.sh <<E_O_X\necho ${v}\nE_O_X\nsbatch -n 1 f.sh",
           'x=${v}; echo "$x" > f.sh; sh f.sh', "x=${v}; cat > f.sh <<E_O_X\necho $x\nE_O_X\nsh f.sh",
           "echo ${v} | tee f.sh; bash -x f.sh", "{ echo a; echo ${v}; } > f.sh; sh f.sh",
           'echo ${v} > "$HOME/f.sh"; bash "$HOME/f.sh"', "echo ${v} > x.awk; awk -f x.awk f", "f() { echo ${v}; }; f > f.sh; sh f.sh"),
    held("echo ${v} > f.txt; sh ./no-such-script f.txt"),
    held("echo ${v} > f.txt; sh ./no-such-script < f.txt"),
    held("cat > f.json <<E_O_X\n${v}\nE_O_X\npython3 ./no-such-script f.json"),
    held("echo 'true' > ${v}.txt; sh ./no-such-script ${v}.txt"),
    held("{ echo ${v}; sh ./no-such-script; } > f.txt"),
)  # fmt: skip
RUNNERS = (
    *_rows("eval '", "x=${v}; f() { \"$@\"; }; f eval 'echo \"$x\"'", ALL, 'f() { "$@"; }; f eval ${v}', 'f() { echo "+ $*"; "$@"; }; f eval "${v}"',
           'f() { shift; "$@"; }; f 1 eval ${v}', 'x=${v}; f() { "$@"; }; f eval "$x"'),
    *_rows("sh -c '", "f() { \"$@\"; }; f sh -c 'echo \"$1\"' sh ${v}", ALL, 'f() { if true; then "$@"; fi; }; f sh -c ${v}'),
    held('f() { "$@"; }; f echo ${v}'),
    held('f() { echo "$@"; }; f eval ${v}'),
)  # fmt: skip
STREAMS = (*READERS, *FILES, *RUNNERS)
