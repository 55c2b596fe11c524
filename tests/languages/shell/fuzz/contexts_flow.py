"""Contexts in which a value gets to a place that is evaluated through variables, and commands with computed names."""

from __future__ import annotations

from tests.languages.shell.fuzz.contexts import ARRAYS, SHELLS, held, judged, plain, refused, second

_INTEGERS = ("bash", "zsh")
_SAFE_EVAL = "x=${v}; eval 'echo \"$x\"'"

READ = (
    judged("declare -i n; read n <<< ${v}; p $n", output="<5>", shells=_INTEGERS),
    judged("typeset -i n; read n <<< ${v}; p $n", output="<5>", shells=ARRAYS),
    judged("declare -i n; read -r n <<EOF\n${v}\nEOF\np $n", output="<5>", shells=_INTEGERS),
    judged("declare -i n; read n < <(echo ${v}); p $n", output="<5>", shells=_INTEGERS),
    judged("typeset -i n; echo ${v} | read n; p $n", output="<5>", shells=("zsh", "ksh")),
    judged("shopt -s lastpipe; declare -i n; echo ${v} | read n; p $n", output="<5>", shells=("bash",)),
    judged("read n <<< ${v}; p $((n))", output="<5>", shells=ARRAYS),
    judged('read a n <<< "x ${v}"; p $((n))', output="<5>", shells=ARRAYS),
    judged("while read n; do p $((n)); done <<< ${v}", "1\n2", "<1><2>", ARRAYS),
    judged("while read n; do p $((n)); done <<EOF\n${v}\nEOF\n", "1\n2", "<1><2>", SHELLS),
    judged("echo ${v} | while read n; do p $((n)); done", output="<5>", shells=SHELLS),
    judged("echo ${v} | { read n; p $((n)); }", output="<5>", shells=SHELLS),
    judged("n=${v}; read m <<< $n; p $((m))", output="<5>", shells=ARRAYS),
    judged("mapfile -t a <<< ${v}; p $((a[0]))", output="<5>", shells=("bash",)),
    judged("declare -ia a; mapfile -t a <<< ${v}; p $a", output="<5>", shells=("bash",)),
    judged("select i in a; do p $((REPLY)); break; done <<< ${v} 2>/dev/null", "1", "<1>", ARRAYS),
    judged("f() { p $(($2)); }; mapfile -t -c 1 -C f a <<< ${v}", output="<5>", shells=("bash",)),
    judged("IFS=, read -ra a <<< ${v}; p $((${a[1]}))", "1,2", "<2>", ("bash",)),
    plain("IFS= read -r x <<EOF\n5\nEOF\n: $((x)); p ${v}"),
)
PRINTED = (
    judged("n=$(echo ${v}); p $((n))", output="<5>", shells=SHELLS),
    judged("n=`echo ${v}`; p $((n))", output="<5>", shells=SHELLS),
    judged("n=$(printf '%s' ${v} | tr -d x); p $((n + 1))", "x5", "<6>", SHELLS),
    judged("declare -i n=$(echo ${v}); p $n", output="<5>", shells=_INTEGERS),
    judged("declare -i n; n=$(echo ${v}); p $n", output="<5>", shells=_INTEGERS),
    judged("[[ $(echo ${v}) -gt 1 ]] && p yes", output="<yes>", shells=ARRAYS),
    judged("n=${v}; m=$(echo $n); p $((m))", output="<5>", shells=SHELLS),
    judged("n=${v}; m=${n#x}; p $((m))", "x5", "<5>", SHELLS),
    judged("n=${v}; m=${n//x/}; p $((m))", "x5", "<5>", ARRAYS),
    judged("n=${v}; : ${m:=$n}; p $((m))", output="<5>", shells=SHELLS),
    judged('x=(1 ${v}); for n in "${x[@]}"; do p $((n)); done', output="<1><5>", shells=ARRAYS),
    plain("i=$((1 + 1)); p ${v}", SHELLS),
    plain('x=${v}; i=${#x}; : $((i)); p "$x"', SHELLS),
)
POSITIONAL = (
    judged("set -- ${v}; p $(($1))", output="<5>", shells=("dash", "busybox", "bash", "ksh", "zsh")),
    judged("set -- ${v}; [[ $1 -gt 1 ]] && p yes", output="<yes>", shells=ARRAYS),
    judged("f() { p $(($1)); }; f ${v}", output="<5>", shells=SHELLS),
    judged("set -- ${v}; for n; do p $((n)); done", output="<5>", shells=SHELLS),
    judged("argv=(${v}); p $(($1))", output="<5>", shells=("zsh",)),
    judged("f() { local -i n=$1; p $n; }; f ${v}", output="<5>", shells=_INTEGERS),
    judged("f() { n=$1; p $((n)); }; f ${v}", output="<5>", shells=SHELLS),
    judged("f() { [[ $1 -gt 1 ]] && p yes; }; f ${v}", output="<yes>", shells=ARRAYS),
    plain('f() { p "$1"; : $((2)); }; f ${v}', SHELLS),
)
NAMES = (
    judged("x=${v}; unset $x; p x", "x_1", "<x>", ("bash", "zsh")),
    judged("x=${v}; [[ -v $x ]] || p no", "x_1", "<no>", ("bash",)),
    judged('x=${v}; test -v "$x" || p no', "x_1", "<no>", ("bash",)),
    judged("x=${v}; x_1=3; p ${!x}", "x_1", "<3>", ("bash",)),
    judged("x=${v}; x_1=3; p ${(P)x}", "x_1", "<3>", ("zsh",)),
    judged("x=${v}; x_1=3; declare -n r=$x; p $r", "x_1", "<3>", ("bash",)),
    judged("x_1=3; declare -n r; r=${v}; p $r", "x_1", "<3>", ("bash",)),
    judged("x_1=3; declare -n r; for r in ${v}; do p $r; done", "x_1", "<3>", ("bash",)),
    judged("set -- ${v}; x_1=3; p ${!1}", "x_1", "<3>", ("bash",)),
    judged("x=${v}; repeat $x p x", "2", "<x><x>", ("zsh",)),
    judged("x=${v}; set -A $x a; p x", "x_1", "<x>", ("ksh", "zsh")),
    plain('a=(${v}); for i in ${!a[@]}; do p "${a[i]}"; done', ("bash",)),
)
INDICES = (
    judged("n=${v}; a=(1 2); a[n]=3; p $n", "1", "<1>", ARRAYS),
    judged("n=${v}; a=(1 2); a[$n]=3; p $n", "1", "<1>", ARRAYS),
    judged("n=${v}; a=(1 2); unset 'a[n]'; p $n", "1", "<1>", ARRAYS),
    judged('n=${v}; a=(1 2); unset "a[$n]"; p $n', "1", "<1>", ARRAYS),
    judged('n=${v}; a=(1 2); read "a[$n]" <<< x; p $n', "1", "<1>", ARRAYS),
    judged('n=${v}; a=(1 2); let "x = a[$n]"; p $n', "1", "<1>", ARRAYS),
    judged("n=${v}; a=(1 2); p $((a[$n]))", "1", "<2>", ("bash", "ksh")),
    judged("n=${v}; a=(1 2); [[ a[$n] -eq 2 ]] && p yes", "1", "<yes>", ("bash", "ksh")),
    judged('n=${v}; declare -A m; printf -v "m[$n]" x; p x', "k", "<x>", ("bash",)),
    judged('n=${v}; declare -A m; unset "m[$n]"; p x', "k", "<x>", _INTEGERS),
    judged('n=${v}; a=(1 2); q="a[$n]"; p $((q))', "1", "<2>", ("bash",)),
    judged('n=${v}; a=(1 2); r="a[$n]"; p ${!r}', "1", "<2>", ("bash",)),
    judged('n=${v}; a=(1 2); declare -n r="a[$n]"; p $r', "1", "<2>", ("bash",)),
    plain('n=${v}; declare -A m; m[$n]=1; p "${!m[@]}"'.replace("m[$n]", "m[x]").replace("${!m[@]}", "$n"), ("bash",)),
)
CODE = (
    second('x=${v}; eval "$x"', _SAFE_EVAL, "eval '", SHELLS),
    second("x=${v}; y=$x; eval echo $y", _SAFE_EVAL, "eval '", SHELLS),
    second('f() { eval "$1"; }; f ${v}', _SAFE_EVAL, "eval '", SHELLS),
    second('x=${v}; sh -c "echo $x"', 'x=${v}; sh -c \'echo "$1"\' sh "$x"', "sh -c '", SHELLS),
    second('x=${v}; ssh host "echo $x"', "printf '%s\\n' ${v} | ssh host 'read -r x; echo \"$x\"'", "read -r"),
    second('x=${v}; trap "echo $x" EXIT', "x=${v}; trap 'echo \"$x\"' EXIT", "trap '", SHELLS),
    second("x=${v}; PS4=$x; set -x; :", "x=${v}; PS4='$x '; set -x; :", "PS4='", SHELLS),
    second('a=(${v}); p "${a[@]@P}"', 'a=(${v}); p "${a[@]}"', "eval '", ("bash",)),
    second('set -- ${v}; p "${1@P}"', 'set -- ${v}; p "$1"', "eval '", ("bash",)),
    second('trap "echo $(echo ${v})" EXIT', "x=${v}; trap 'echo \"$x\"' EXIT", "trap '", SHELLS),
    second('x=${v}; mapfile -c1 -C"$x" a <<< x', "f() { p; }; mapfile -c1 -Cf a <<< ${v}", "function", ("bash",)),
    second("x=${v}; aliases[q]=$x; p q", 'x=${v}; q() { p "$x"; }; q', "function", ("zsh",)),
    second("x=${v}; functions[q]=$x; p q", 'x=${v}; q() { p "$x"; }; q', "function", ("zsh",)),
    second('x=${v}; echo "$x" | sh', "echo 'echo \"$1\"' | sh -s -- ${v}", "sh -s -- ", SHELLS),
    second("x=${v}; sh <<EOF\necho $x\nEOF\n", "sh -s -- ${v} <<'EOF'\necho \"$1\"\nEOF\n", "sh -s -- ", SHELLS),
    second('x=$(echo ${v}); sh <<< "$x"', "sh -s -- ${v} <<< 'echo \"$1\"'", "sh -s -- ", ARRAYS),
    second("x=${v}; source /dev/stdin <<< $x", "x=${v}; source /dev/stdin <<< 'echo \"$x\"'", "x=${", ARRAYS),
    second("x=${v}; p ${x@P}", 'x=${v}; p "$x"', "eval '", ("bash",)),
    second("x=${v}; p ${(e)x}", 'x=${v}; p "$x"', "eval '", ("zsh",)),
    refused("ENV=${v} sh -ic :", "export X=${v}; ENV='$X' sh -c :", "ENV='", SHELLS),
    held("ENV=${v} p x"),
)
COMPUTED = (
    second('e=eval; $e "echo ${v}"', _SAFE_EVAL, "eval '", SHELLS),
    second('$SHELL -c "echo ${v}"', "$SHELL -c 'echo \"$1\"' sh ${v}", "sh -c '", SHELLS),
    second('"$BASH" -c "echo ${v}"', '"$BASH" -c \'echo "$1"\' sh ${v}', "sh -c '"),
    second(
        "${PYTHON:-python3} -c \"print('${v}')\"",
        "${PYTHON:-python3} -c 'import sys; print(sys.argv[1])' ${v}",
        "sys.argv",
    ),
    second('$(command -v sh) -c "echo ${v}"', "$(command -v sh) -c 'echo \"$1\"' sh ${v}", "sh -c '", SHELLS),
    second("cmd='sh -c'; $cmd ${v}", "cmd='sh -c'; $cmd 'echo \"$1\"' sh ${v}", "sh -c '", SHELLS),
    second('cmd=(sh -c); "${cmd[@]}" "echo ${v}"', "sh -c 'echo \"$1\"' sh ${v}", "sh -c '", ARRAYS),
    second("echo ${v} | ${SHELL:-sh}", "echo 'echo \"$1\"' | ${SHELL:-sh} -s -- ${v}", "sh -s -- ", SHELLS),
    second("$UNKNOWN ${v}", "echo ${v}", "write its name: ", SHELLS),
    second("if true; then `echo eval` ${v}; fi", "if true; then echo ${v}; fi", "write its name: ", SHELLS),
    judged("e=let; $e n=${v}; p $n", output="<5>", shells=("bash", "ksh", "zsh", "bash as sh")),
    plain("e=p; $e ${v}", SHELLS),
    held("$HOME/bin/tool ${v}"),
)
FLOW = (*READ, *PRINTED, *POSITIONAL, *NAMES, *INDICES, *CODE, *COMPUTED)
