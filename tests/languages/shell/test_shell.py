"""Values in shell commands, against the real `sh` and `bash`."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resile.languages.references import MISSING, ValueRefused
from resile.languages.shell.quoting import plain_argv, render_shell

HOSTILE = [
    "",
    "plain",
    "two words",
    "$(touch pwned)",
    "`touch pwned`",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "'\"'\"$(touch pwned)",
    "\\",
    "\\\\",
    "\\'",
    '\\"',
    "\\$(touch pwned)",
    "\\`touch pwned\\`",
    "a\nb",
    "\n",
    "\n\ntouch pwned\n",
    "${HOME}",
    "$HOME $1 $$ $(",
    "}; touch pwned; {",
    "} $(touch pwned)",
    ") touch pwned (",
    "*",
    "~",
    "-n",
    "-e \\n",
    "!",
    "!!",
    "#",
    "a # b",
    "a b=c",
    "& touch pwned &",
    "| touch pwned",
    "> pwned",
    "< /dev/null",
    "é ü ☃ 🎉",
    "\udcff\udc80",
    "\t\r\v\f",
    "\x01",
    "\x7f",
    "{a,b}",
    "{a,'b,c}'",
    "<(",
    ">(touch pwned)",
    "{a,<(b'}",
    "'{a,b}",
    "{'a,b'}",
    "'a' {1..3} '",
    "[a-z]",
    "a[$(touch pwned)]",
    "EO\nF",
    "\\\nEO",
    "case x in y) touch pwned;; esac",
    "%s%d\\n",
    "x" * 5_000 + "'",
]

EVERY_SHELL = {
    "bare": "printf '%s\\0' ${v}",
    "glued": "printf '%s\\0' ${v}''",
    "double": "printf '%s\\0' \"${v}\"",
    "double, glued": 'printf \'%s\\0\' ""${v}""',
    "single": "printf '%s\\0' '${v}'",
    "assignment": "A=${v}; printf '%s\\0' \"$A\"",
    "quoted assignment": 'A="${v}"; printf \'%s\\0\' "$A"',
    "environment": 'A=${v} sh -c \'printf "%s\\0" "$A"\'',
    "substitution": "A=$(printf '%s.' ${v}); printf '%s\\0' \"${A%.}\"",
    "quoted substitution": 'A="$(printf \'%s.\' "${v}")"; printf \'%s\\0\' "${A%.}"',
    "nested substitution": "A=\"$(printf '%s' \"$(printf '%s.' '${v}')\")\"; printf '%s\\0' \"${A%.}\"",
    "backquotes": "A=`printf '%s.' ${v}`; printf '%s\\0' \"${A%.}\"",
    "backquotes, double": "A=`printf '%s.' \"${v}\"`; printf '%s\\0' \"${A%.}\"",
    "backquotes, single": "A=`printf '%s.' '${v}'`; printf '%s\\0' \"${A%.}\"",
    "quoted backquotes": "A=\"`printf '%s.' ${v}`\"; printf '%s\\0' \"${A%.}\"",
    "quoted backquotes, double": 'A="`printf \'%s.\' "${v}"`"; printf \'%s\\0\' "${A%.}"',
    "backquotes in a substitution": "A=$(printf %s \"`printf '%s.' ${v}`\"); printf '%s\\0' \"${A%.}\"",
    "default": "unset U; A=${U:-${v}}; printf '%s\\0' \"$A\"",
    "quoted default": "unset U; printf '%s\\0' \"${U:-${v}}\"",
    "nested default": "unset U; printf '%s\\0' \"${U:-${W-${v}}}\"",
    "alternative": "S=1; printf '%s\\0' \"${S:+${v}}\"",
    "suffix": "A=head${v}; B=${A#head}; A=x${v}; A=${A%${v}}; printf '%s\\0' \"$B\"",
    "case": "case ${v} in ${v}) printf '%s\\0' ${v};; esac",
    "case in a substitution": "A=$(case a in a) printf '%s.' \"${v}\";; esac); printf '%s\\0' \"${A%.}\"",
    "case with brackets": "A=$(case ${v} in (${v}) printf '%s.' ${v} ;; esac); printf '%s\\0' \"${A%.}\"",
    "group": "{ (printf '%s\\0' ${v}); }",
    "if": "if [ ${v} = \"${v}\" ]; then printf '%s\\0' ${v}; fi",
    "for": "for A in ${v}; do printf '%s\\0' \"$A\"; done",
    "function": "f() { printf '%s\\0' \"$1\"; }; f ${v}",
    "after a comment": "# ${v} it's \"open\n printf '%s\\0' ${v} # ${v}",
    "comment in a substitution": "A=$( # ${v} )\n printf '%s.' ${v}); printf '%s\\0' \"${A%.}\"",
    "continued line": "printf '%s\\0' \\\n${v}",
    "after escapes": "true \\' \\\" \\\\ \"\\\"\" '\\'; printf '%s\\0' ${v}",
    "here-document": "A=$(cat <<_EOX_\n${v}.\n_EOX_\n); printf '%s\\0' \"${A%.}\"",
    "quoted here-document": "A=$(cat <<'_EOX_'\n${v}.\n_EOX_\n); printf '%s\\0' \"${A%.}\"",
    "here-document, then more": "cat <<_EOX_ >/dev/null; printf '%s\\0' ${v}\nit's ${v}\n_EOX_\n",
    "two here-documents": "cat <<_A_ >/dev/null\n\"${v}\n_A_\ncat <<\\_B_ >/dev/null\n'${v}\n_B_\nprintf '%s\\0' ${v}",
    "substitution in a here-document": "A=$(cat <<_EOX_\n$(printf '%s' ${v}.)\n_EOX_\n); printf '%s\\0' \"${A%.}\"",
    "path": "printf '%s\\0' ${steps['a b'].output}",
    "path in single quotes": "printf '%s\\0' '${steps['a b'].output}'",
}

BASH_ONLY = {
    "ansi": "printf '%s\\0' $'${v}'",
    "ansi with an escape": "A=$'it\\'s${v}'; printf '%s\\0' \"${A#it\\'s}\"",
    "locale": "printf '%s\\0' $\"${v}\"",
    "test": "[[ ${v} == ${v} && \"${v}\" = '${v}' ]] && printf '%s\\0' ${v}",
    "here-string": "IFS= read -r -d '' A <<<${v}.; A=${A%$'\\n'}; printf '%s\\0' \"${A%.}\"",
    "process substitution": "IFS= read -r -d '' A < <(printf '%s.' ${v}); printf '%s\\0' \"${A%.}\"",
    "array": "A=(x ${v}); printf '%s\\0' \"${A[1]}\"",
    "extended glob": "shopt -s extglob; printf '%s\\0' ${v}",
}

# Left out is what the shells themselves lose, from plain files too: bash a U+0001 before U+007F, dash a byte above
# 127 behind the first letters of a here-document's delimiter (which starts with `_` here).
TEXT = st.text(
    st.one_of(st.sampled_from(list("$`\"'\\{}()[]<>|&;#!*?~ \n\t=-%aEOX1")), st.characters(codec="utf-8")), max_size=60
).filter(lambda text: "\0" not in text and "\x01" not in text and "_" not in text)


def lookup_of(value: object):  # type: ignore[no-untyped-def]
    """A workflow that knows `v` and one step's output."""
    known = {"v": value, "steps['a b'].output": value}
    return lambda name: known.get(name, MISSING)


def run(shell: str, script: str, folder: Path) -> bytes:
    """What a script prints in a folder in which nothing may appear."""
    file = folder / "script"
    file.write_bytes(script.encode("utf-8", "surrogateescape"))
    done = subprocess.run([shell, str(file)], cwd=folder, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.stderr == b""
    file.unlink()
    assert list(folder.iterdir()) == []
    return done.stdout


@pytest.mark.parametrize("context", EVERY_SHELL)
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_every_place_prints_the_value(shell: str, context: str, tmp_path: Path) -> None:
    """Each hostile value comes out of each place exactly as it is, and nothing runs."""
    for value in HOSTILE:
        script = render_shell(EVERY_SHELL[context], lookup_of(value), shell)
        assert run(shell, script, tmp_path) == value.encode("utf-8", "surrogateescape") + b"\0", value


@pytest.mark.parametrize("context", BASH_ONLY)
def test_every_place_of_bash_prints_the_value(context: str, tmp_path: Path) -> None:
    """The same for the forms that only bash knows."""
    for value in HOSTILE:
        script = render_shell(BASH_ONLY[context], lookup_of(value), "bash")
        assert run("bash", script, tmp_path) == value.encode("utf-8", "surrogateescape") + b"\0", value


@pytest.mark.slow
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=TEXT)
def test_random_values_survive_every_place(value: str, tmp_path: Path) -> None:
    """All places in one script: every one prints the value, in both shells, whatever it holds."""
    expected = value.encode("utf-8", "surrogateescape") + b"\0"
    script = "\n".join(render_shell(text, lookup_of(value)) for text in EVERY_SHELL.values())
    for shell in ("sh", "bash"):
        assert run(shell, script, tmp_path) == expected * len(EVERY_SHELL)


FRAGMENTS = [
    "${v}", "${v}", "${v}", '"', "'", "`", "$(", ")", "(", "((", "))", "$((", "${A:-", "${A%", '"${A:-', "}", "{", ";", "\n", " ",
    " ", "#", "\\", "<<E\n", "<<'E'\n", "\nE\n", "case x in ", "x) ", ";;", " esac ", "echo ", "$'", "[[ ", " ]]", "a[", "]=",
    " -eq ", "<(", "|", "&&", "$", "$$", "<<<", "if ", "then ", "fi ", "x=", "\t", "!", "esac", "in ", "case ",
]  # fmt: skip
ATTACKS = [
    "$(touch pwned)",
    "`touch pwned`",
    "\ntouch pwned\n",
    "';touch pwned;'",
    '";touch pwned;"',
    ")\ntouch pwned\n(",
    "};touch pwned;{",
    "\nE\ntouch pwned\n",
    "'\"`\n)};touch pwned #",
    "a[$(touch pwned)]",
    "\\';touch pwned;\\\"",
    "x);; esac; touch pwned #",
]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=14), value=st.sampled_from(ATTACKS))
def test_no_text_lets_a_value_run(pieces: list[str], value: str, tmp_path: Path) -> None:
    """Whatever the command looks like: the value is refused or it is only a value."""
    pwned = tmp_path / "pwned"
    for shell in ("sh", "bash"):
        try:
            script = render_shell("".join(pieces), lookup_of(value), shell)
        except ValueRefused:
            continue
        argv = [shell, "-c", script]
        subprocess.run(argv, cwd=tmp_path, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
        if pwned.exists():
            # Excepted is what bash rejects with a plain value too: after an error inside $( ) it goes on with the next
            # line, wherever that stands.
            plain = render_shell("".join(pieces), lookup_of("1"), shell)
            done = subprocess.run([shell, "-c", plain], cwd=tmp_path, capture_output=True, stdin=subprocess.DEVNULL)
            assert b"syntax error" in done.stderr, script
            pwned.unlink()


@pytest.mark.parametrize("value", ["-5", "0", "42"])
def test_arithmetic_takes_numbers(value: str, tmp_path: Path) -> None:
    """A number in arithmetic is that number, a negative one too."""
    script = render_shell('printf %s "$((10-${v}))" $((${v}*2))', lookup_of(value))
    assert run("sh", script, tmp_path) == f"{10 - int(value)}{int(value) * 2}".encode()


@pytest.mark.parametrize(
    "text",
    [
        "echo $((${v}))",
        'echo "$(( 1 + ${v} ))"',
        "echo $[${v}]",
        "((${v} > 1))",
        "[[ ${v} -eq 1 ]]",
        '[[ 1 -lt "${v}" ]]',
        "a[${v}]=1",
        "a=([${v}]=1)",
        "a=(x [1+${v}]+=1)",
        "a[$'${v}']=1",
        "a[b[${v}]]=1",
        "A=1 a[1\n+${v}]=1",
        "a[1 + ${v}]+=1",
        'a["${v}"]=1',
        "[[ 1${v} -eq 1 ]]",
        "let x=${v}",
        "declare -i x=${v}",
        "declare -i x; y=${v}; x=$y",
        'declare -i x; y=${v}; z=${y}; x="$z"',
        "y=${v}; x=y; echo $((x))",
        'echo "${a[${v}]}"',
        "echo ${a:${v}}",
    ],
)
def test_arithmetic_refuses_text(text: str) -> None:
    """Where the shell would evaluate the value, only a number is taken."""
    assert render_shell(text, lookup_of(7), "bash") == text.replace("${v}", "7")
    with pytest.raises(ValueRefused, match=r"not a (whole )?number"):
        render_shell(text, lookup_of("a[$(touch pwned)]"), "bash")


@pytest.mark.parametrize(
    "text",
    [
        "unset ${v}",
        "read -r ${v}",
        "export ${v}",
        "[ -v ${v} ]",
        "[[ -v ${v} ]]",
        "printf -v ${v} x",
        "builtin unset '${v}'",
    ],
)
def test_names_of_variables_refuse_text(text: str) -> None:
    """Where the shell would look a variable up by the value, only a plain name is taken."""
    assert render_shell(text, lookup_of("A_1"), "bash") == text.replace("${v}", "A_1")
    with pytest.raises(ValueRefused, match="not a plain name"):
        render_shell(text, lookup_of("a[$(touch pwned)]"), "bash")


@pytest.mark.parametrize(
    "text",
    ["echo [${v}]", "echo 'a[${v}]'", 'echo "a[${v}]"', "a[1]=${v}", "a=(${v} [1]=${v})", "export A=${v}",
     "[ ${v} = x ]", "echo x; x=${v}", "[[ ${v} == x ]]", "declare -i x; y=${v}; z=$y; x=${#y}", "y=${v}; x=$y; let z=1",
     "declare -i x; x=${inputs.y}; y=${v}"],
)  # fmt: skip
def test_text_is_taken_where_nothing_is_evaluated(text: str) -> None:
    """Brackets and builtins alone refuse nothing."""
    assert "$(touch pwned)" in render_shell(text, lookup_of("a[$(touch pwned)]"), "bash").replace("\\", "")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cat <<EOF\n${v}\nEOF\n", "a\nEOF\ntouch pwned"),
        ("cat <<'EOF'\n${v}\nEOF\n", "EOF"),
        ("cat <<EOF\nE${v}\nEOF\n", "OF"),
        ("cat <<-EOF\n\t${v}\n\tEOF\n", "\t\tEOF"),
        ("x=$(cat <<EOF\n${v}\nEOF\n)", "EOF)"),
    ],
)
def test_a_value_never_ends_its_here_document(text: str, value: str) -> None:
    """A value with the delimiter's line fails the step."""
    with pytest.raises(ValueRefused, match="would end its here-document"):
        render_shell(text, lookup_of(value))


@pytest.mark.parametrize(
    "text",
    [
        "echo 'open ${v}",
        'echo "open ${v}',
        "echo `open ${v}",
        "echo $(open ${v}",
        "echo ${v} )",
        "cat <<${v}\n",
        "echo `echo \\`echo ${v}\\``",
        'echo "${A%${v}}"',
        'echo "${A/${v}/x}"',
        'echo "${A:-"${v}"}"',
        "printf %s $'it\\'s' ${v} $'it\\'s'",
        "echo " + "$(" * 60 + "${v}" + ")" * 60,
    ],
)
def test_what_can_not_be_followed_is_refused(text: str) -> None:
    """A text whose reading is not certain takes no value, and stays as it is where the name is not known."""
    with pytest.raises(ValueRefused, match="no value can be put safely"):
        render_shell(text, lookup_of("x"))
    assert render_shell(text, lambda _: MISSING) == text


@pytest.mark.parametrize(
    "text",
    [
        "echo $1 $$ $# $? $(date) `date` ${VAR:-x} ${#v} ${v%y} ${v:-1} ${!v} ${v[@]} ${v.}",
        "echo \\${v} '\\${v}' \"\\${v}\" $${v}",
        "echo ${unknown} ${unknown.path} ${raw:unknown}",
    ],
)
def test_the_shells_own_dollars_are_left_alone(text: str) -> None:
    """Whatever is not a reference to a known name reaches the shell as it was written."""
    assert render_shell(text, lookup_of("VALUE")) == text


def test_values_of_every_type() -> None:
    """Lists and maps are JSON, booleans words, None nothing, raw unquoted."""
    for value, text in [([1, "a b"], "'[1,\"a b\"]'"), ({"k": None}, "'{\"k\":null}'"), (True, "'true'"),
                        (None, "''"), (1.5, "'1.5'"), (12, "'12'"), (["\udcff"], "'[\"\udcff\"]'")]:  # fmt: skip
        assert render_shell("echo ${v}", lookup_of(value)) == f"echo {text}"
    assert render_shell("${raw:v}", lookup_of("a | b; c")) == "a | b; c"


@pytest.mark.parametrize("text", ["echo ${v}", "echo '${v}'", "${raw:v}", "# ${v}"])
def test_nul_is_refused(text: str) -> None:
    """No process can be given a NUL."""
    with pytest.raises(ValueRefused, match="NUL"):
        render_shell(text, lookup_of("a\0b"))


def test_a_megabyte_goes_through(tmp_path: Path) -> None:
    """Size changes nothing."""
    value = "'\"$(touch pwned)\n" * 60_000
    script = render_shell('printf %s ${v}; printf %s "${v}"; cat <<EOX\n${v}\nEOX\n', lookup_of(value))
    assert run("sh", script, tmp_path) == (value * 3 + "\n").encode()


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("true", ("true",)),
        ("  make -j4 all ", ("make", "-j4", "all")),
        ("echo hello", ("echo", "hello")),
        ("echo 'two words' \"and more\"x", ("echo", "two words", "and morex")),
        ("grep -c a=b file#1", ("grep", "-c", "a=b", "file#1")),
        ("prog ''", ("prog", "")),
        ("sleep 0.1", ("sleep", "0.1")),
        ("./run.sh --name=x,y +z @f %d", ("./run.sh", "--name=x,y", "+z", "@f", "%d")),
        ("café", ("café",)),
    ],
)
def test_plain_words_run_without_a_shell(command: str, argv: tuple[str, ...]) -> None:
    """Words without anything for the shell to do are the argument vector."""
    assert plain_argv(command) == argv


@pytest.mark.parametrize(
    "command",
    [
        "", " ", "a | b", "a && b", "a; b", "a > f", "a $B", "a `b`", "a *", "a ?", "a [b]", "~/x", "a ~", "A=1 b", "cd /",
        "exit 3", "export A", ":", ". f", "ulimit -n", "exec a", "set -e", "trap x 0", "wait", "read a", "umask", "if",
        "for", "'cd' /", "echo a\\b", "echo -e x", "echo", "printf '%s\\n' x", "printf", "test -f x", "pwd", "kill 1", "a\nb",
        "a # b", "#a", "{ a", "a {b,c}", "! a", "a 'b", 'a "b', 'a "$b"', "'' a", "a (b)", "a \\b", "time a", "a\0b", "a ^b",
        "[ -f a ]", "%1",
    ],
)  # fmt: skip
def test_everything_else_needs_the_shell(command: str) -> None:
    """A character, a word or a builtin with a meaning to the shell sends the command there."""
    assert plain_argv(command) is None


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.text(st.sampled_from(list("ab1=,./:-+@%_'\" #~*$\\{}[]!^|é")), min_size=1, max_size=6),
        min_size=1,
        max_size=4,
    )
)
def test_plain_words_are_what_the_shell_would_pass(tmp_path: Path, words: list[str]) -> None:
    """Whenever a command is called plain, both shells give a program the very same words."""
    rest = " ".join(words)
    argv = plain_argv(f"prog {rest}")
    if argv is None:
        return
    for shell in ("sh", "bash"):
        printed = run(shell, f"prog() {{ printf '%s\\0' \"$@\"; }}\nprog {rest}", tmp_path)
        assert printed.decode().split("\0")[:-1] == (list(argv[1:]) or [""])
