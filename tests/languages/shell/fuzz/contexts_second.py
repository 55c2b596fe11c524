"""Contexts in which a second interpreter reads the value as its code, and how to write each of them."""

from __future__ import annotations

from tests.languages.shell.fuzz.contexts import ARRAYS, held, second

SHELLS_AGAIN = (
    second('eval "echo ${v}"', "x=${v}; eval 'echo \"$x\"'", "eval '"),
    second("eval echo ${v}", "x=${v}; eval 'echo \"$x\"'", "eval '"),
    second("x=1; eval 'y=${v}'", "x=${v}; eval 'y=$x'", "eval '"),
    second("command eval \"echo '${v}'\"", "x=${v}; command eval 'echo \"$x\"'", "eval '"),
    second("if true; then eval ${v}; fi", "x=${v}; if true; then eval 'echo \"$x\"'; fi", "eval '"),
    second('eval "$(echo ${v})"', "x=${v}; eval 'echo \"$x\"'", "eval '"),
    second('sh -c "echo ${v}"', "sh -c 'echo \"$1\"' sh ${v}", "sh -c '"),
    second("sh -c 'echo ${v}'", "sh -c 'echo \"$1\"' sh ${v}", "sh -c '"),
    second("sh -c ${v}", "sh -c '\"$1\"' sh ${v}", "sh -c '"),
    second("/bin/sh -ec \"echo '${v}'\"", "/bin/sh -ec 'echo \"$1\"' sh ${v}", "sh -c '"),
    second('bash -o pipefail -c "echo ${v}"', "bash -o pipefail -c 'echo \"$1\"' sh ${v}", "sh -c '"),
    second('exec dash -c "echo ${v}"', "exec dash -c 'echo \"$1\"' sh ${v}", "sh -c '"),
    second('env A=1 sh -c "echo ${v}"', "env A=1 sh -c 'echo \"$1\"' sh ${v}", "sh -c '"),
    second('A=1 nohup sh -c "echo ${v}"', "A=1 nohup sh -c 'echo \"$1\"' sh ${v}", "sh -c '"),
    second('timeout 5 sh -c "echo ${v}"', "timeout 5 sh -c 'echo \"$1\"' sh ${v}", "sh -c '"),
    second('sudo -u x sh -c "echo ${v}"', "sudo -u x sh -c 'echo \"$1\"' sh ${v}", "sh -c '"),
    second('docker exec box sh -c "echo ${v}"', "docker exec box sh -c 'echo \"$1\"' sh ${v}", "sh -c '"),
    second('find . -exec sh -c "echo ${v}" \\;', "find . -exec sh -c 'echo \"$1\"' sh ${v} \\;", "sh -c '"),
    second('echo a | xargs sh -c "echo ${v}"', "echo a | xargs sh -c 'echo \"$1\"' sh ${v}", "sh -c '"),
    second('echo $(sh -c "echo ${v}")', "echo $(sh -c 'echo \"$1\"' sh ${v})", "sh -c '"),
    second('su x -c "echo ${v}"', "su -c 'echo \"$1\"' -- x sh ${v}", "su -c '"),
    second('su -c "echo ${v}" x', "su -c 'echo \"$1\"' -- x sh ${v}", "su -c '"),
    second('flock f -c "echo ${v}"', "flock f echo ${v}", "sh -c '"),
    second('script -qc "echo ${v}" /dev/null', "export X=${v}; script -qc 'echo \"$X\"' /dev/null", "export X="),
    second('watch "echo ${v}"', "watch -x echo ${v}", "watch -x"),
    second('parallel "echo ${v} {}" ::: a', "export X=${v}; parallel 'echo \"$X\" {}' ::: a", "export X="),
    second('ssh host "echo ${v}"', "printf '%s\\n' ${v} | ssh host 'read -r x; echo \"$x\"'", "read -r"),
    second("ssh -p 22 host echo ${v}", "printf '%s\\n' ${v} | ssh -p 22 host 'read -r x; echo \"$x\"'", "read -r"),
)
STANDARD_INPUT = (
    second('echo "echo ${v}" | sh', "echo 'echo \"$1\"' | sh -s -- ${v}", "sh -s -- "),
    second("echo ${v} | bash -s", "echo 'echo \"$1\"' | bash -s -- ${v}", "sh -s -- "),
    second("printf '%s\\n' \"${v}\" | sudo sh", "printf '%s\\n' 'echo \"$1\"' | sudo sh -s -- ${v}", "sh -s -- "),
    second("printf 'echo %s\\n' ${v} | tr a a | sh -x", "echo 'echo \"$1\"' | sh -sx -- ${v}", "sh -s -- "),
    second("sh <<EOF\necho ${v}\nEOF\n", "sh -s -- ${v} <<'EOF'\necho \"$1\"\nEOF\n", "sh -s -- "),
    second("sh <<'EOF'\necho ${v}\nEOF\n", "sh -s -- ${v} <<'EOF'\necho \"$1\"\nEOF\n", "sh -s -- "),
    second(
        "bash -s -- a <<-EOF\n\techo ${v}\n\tEOF\n", "bash -s -- ${v} <<-'EOF'\n\techo \"$1\"\n\tEOF\n", "sh -s -- "
    ),
    second("cat <<EOF | sh\necho ${v}\nEOF\n", "cat <<'EOF' | sh -s -- ${v}\necho \"$1\"\nEOF\n", "sh -s -- "),
    second("ssh host <<EOF\necho ${v}\nEOF\n", "printf '%s\\n' ${v} | ssh host 'read -r x; echo \"$x\"'", "read -r"),
    second('sh <<< "echo ${v}"', "sh -s -- ${v} <<< 'echo \"$1\"'", "sh -s -- ", ARRAYS),
    second(". /dev/stdin <<EOF\necho ${v}\nEOF\n", "x=${v}\n. /dev/stdin <<'EOF'\necho \"$x\"\nEOF\n", "x=${"),
    second("source /dev/stdin <<< ${v}", "x=${v}; source /dev/stdin <<< 'echo \"$x\"'", "x=${", ARRAYS),
    second('source <(echo "echo ${v}")', "x=${v}; source <(echo 'echo \"$x\"')", "x=${", ARRAYS),
    second("bash <(printf %s ${v})", "bash <(echo 'echo \"$1\"') ${v}", "sh -c '", ARRAYS),
    second(
        "python3 <<EOF\nprint('${v}')\nEOF\n",
        "python3 - ${v} <<'EOF'\nimport sys; print(sys.argv[1])\nEOF\n",
        "sys.argv",
    ),
    second(
        "python3 - <<'EOF'\nprint('${v}')\nEOF\n",
        "python3 - ${v} <<'EOF'\nimport sys; print(sys.argv[1])\nEOF\n",
        "sys.argv",
    ),
    held("cat <<EOF | tr a b\n${v}\nEOF\n"),
    held("echo ${v} | tr a b"),
    held("echo ${v} | sh ./no-such-script"),
    held("sh ./no-such-script ${v} <<EOF\n${v}\nEOF\n"),
    held("echo ${v} | sh -c 'cat >/dev/null'"),
)
LANGUAGES = (
    second("python3 -c \"print('${v}')\"", "python3 -c 'import sys; print(sys.argv[1])' ${v}", "sys.argv"),
    second("python -c 'print(${v})'", "python -c 'import sys; print(sys.argv[1])' ${v}", "sys.argv"),
    second(
        '/usr/bin/python3.11 -Ic "${v}"', "/usr/bin/python3.11 -Ic 'import sys; print(sys.argv[1])' ${v}", "sys.argv"
    ),
    second("perl -e \"print '${v}'\"", "X=${v} perl -e 'print $ENV{X}'", "$ENV"),
    second('perl -pi -e "s/a/${v}/" f', "X=${v} perl -pi -e 's/a/$ENV{X}/' f", "$ENV"),
    second("perl -ne 'print if /${v}/' f", "X=${v} perl -ne 'print if /\\Q$ENV{X}/' f", "$ENV"),
    second("ruby -e \"puts '${v}'\"", "ruby -e 'puts ARGV[0]' -- ${v}", "ARGV"),
    second("node -e \"console.log('${v}')\"", "node -e 'console.log(process.argv[1])' -- ${v}", "process.argv"),
    second("node --eval='x(${v})'", "node --eval='x(process.argv[1])' -- ${v}", "process.argv"),
    second("php -r \"echo '${v}';\"", "php -r 'echo $argv[1];' -- ${v}", "$argv"),
    second("awk '{print \"${v}\"}' f", "X=${v} awk '{print ENVIRON[\"X\"]}' f", "ENVIRON"),
    second('awk -F : "/${v}/" f', "X=${v} awk -F : '$0 ~ ENVIRON[\"X\"]' f", "ENVIRON"),
    second(
        'echo a | gawk -v n=1 "{print n, ${v}}"', "echo a | X=${v} gawk -v n=1 '{print n, ENVIRON[\"X\"]}'", "ENVIRON"
    ),
    second('sed "s/a/${v}/" f', "X=${v} awk '{gsub(/a/, ENVIRON[\"X\"])} 1' f", "ENVIRON"),
    second("sed -i -e 's/a/b/' -e \"s/c/${v}/\" f", "X=${v} awk '{gsub(/c/, ENVIRON[\"X\"])} 1' f", "ENVIRON"),
    second('sed -n --expression="/${v}/p" f', "grep -e ${v} f", "ENVIRON"),
    held("sed -n 1p ${v}"),
    held('sed --sandbox "s/a/${v}/" /dev/null'),
    held("awk '{print}' ${v}"),
    held("awk -v x=${v} 'BEGIN {print x}'"),
    held("python3 -c 'import sys' ${v}"),
    held("perl -e 1 ${v}"),
)
SECOND = (*SHELLS_AGAIN, *STANDARD_INPUT, *LANGUAGES)
