"""Contexts of programs that read code in their words or in their standard input, and of those that read data."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

from tests.languages.shell.fuzz.contexts import Context, held, second

_ONE = ("dash",)


def _rows(hint: str, safe: str, *texts: str) -> tuple[Context, ...]:
    """Contexts with one hint and one safe form, on one shell: no shell reads these words in a way of its own."""
    return tuple(second(text, safe, hint, _ONE) for text in texts)


IN_WORDS = (
    *_rows("ENVIRON", "X=${v} gawk --source='{print ENVIRON[\"X\"]}' f", 'gawk --source="{print ${v}}" f', 'gawk -e "${v}" f',
           'gawk --source "${v}" f'),
    *_rows("su -c '", "su -c 'echo \"$1\"' -- x sh ${v}", 'su --session-command="echo ${v}" x',
           'su x --session-command "echo ${v}"', 'sg group "echo ${v}"', 'sg group -c "echo ${v}"'),
    *_rows("fish -c '", "fish -c 'echo $argv[1]' ${v}", 'fish --command="echo ${v}"', 'fish -c "echo ${v}"'),
    *_rows("sh -c '", "ksh93 -c 'echo \"$1\"' sh ${v}", 'ksh93 -c "echo ${v}"', 'rbash -c "echo ${v}"', 'yash -c "echo ${v}"',
           'srun -n 1 bash -c "echo ${v}"'),
    *_rows("$env:X", "export X=${v}; pwsh -c 'echo $env:X'", 'pwsh -c "echo ${v}"', "pwsh -NoProfile -Command Write-Host ${v}"),
    *_rows("os.getenv", "export X=${v}; lua -e 'print(os.getenv(\"X\"))'", "lua -e \"print('${v}')\"", "luajit -e 'print(${v})'"),
    *_rows("Sys.getenv", "export X=${v}; Rscript -e 'print(Sys.getenv(\"X\"))'", "R -e \"print('${v}')\"",
           "R --no-save -e 'print(${v})'", "Rscript -e 'print(${v})'", "Rscript --vanilla -e 'print(${v})'"),
    *_rows("ARGS[1]", "julia -e 'print(ARGS[1])' ${v}", 'julia -e "print(${v})"', 'julia --project=. --eval="print(${v})"'),
    *_rows("Deno.env", "export X=${v}; deno eval 'console.log(Deno.env.get(\"X\"))'", 'deno eval "print(${v})"'),
    *_rows("process.argv", "bun -e 'console.log(process.argv[1])' -- ${v}", 'bun -e "print(${v})"'),
    *_rows("[sys.argv[1]]", "python3 -c 'import sys, sqlite3; sqlite3.connect(\"a\").execute(\"select ?\", [sys.argv[1]])' ${v}",
           "sqlite3 a.db \"SELECT '${v}'\"", "sqlite3 -json a.db \"SELECT '${v}'\"", "mysql -e \"SELECT '${v}'\"",
           "mariadb -u x --execute=\"SELECT '${v}'\" db"),
    *_rows("psql -v x=${v}", "psql -v x=${v} -f query.sql", "psql -c \"SELECT '${v}'\"", "psql -At -d db -c \"SELECT '${v}'\"",
           "psql -Atc \"SELECT '${v}'\" db"),
    *_rows("X=${v} make", "X=${v} make", 'make --eval="${v}"', 'make -s --eval "x: ; echo ${v}"'),
    *_rows("sbatch FILE ${v}", "sbatch job.sh ${v}", 'sbatch --wrap="echo ${v}"', 'sbatch -n 1 --wrap "echo ${v}"'),
    *_rows("export X=${v}", "export X=${v}; git -c alias.x='!echo \"$X\"' x", 'git -c alias.x="!echo ${v}" x',
           'git -c core.pager="less ${v}" log', 'git rebase -x "echo ${v}" HEAD~1', 'git rebase --exec="echo ${v}" HEAD~1',
           'git submodule foreach "echo ${v}"'),
    *_rows("export X=${v}", "export X=${v}; tar -xf a --to-command='echo \"$X\"'", 'tar --to-command="echo ${v}" -xf a',
           'tar -x --checkpoint-action=exec="echo ${v}" -f a', 'tar -I "zstd ${v}" -cf a b'),
    *_rows("export X=${v}", "export X=${v}; ssh -o ProxyCommand='nc \"$X\" 22' host true", 'ssh -o ProxyCommand="nc ${v} 22" host true',
           'ssh -oProxyCommand="nc ${v} 22" host true', 'rsync -e "ssh ${v}" a b:'),
    *_rows("tmux set-environment X ${v}", "tmux set-environment X ${v}; tmux new-window 'echo \"$X\"'",
           'tmux send-keys "echo ${v}" Enter', 'tmux send-keys -t s "echo ${v}" Enter', 'tmux new-session -d -s x "echo ${v}"'),
    *_rows("parallel '", "export X=${v}; parallel ::: 'echo \"$X\"'", 'parallel ::: "echo ${v}"', "parallel sh -c ::: ${v}",
           "echo ${v} | parallel", "echo ${v} | parallel -j4 sh -c"),
    *_rows("ENVIRON", "X=${v} srun awk '{print ENVIRON[\"X\"]}' f", 'srun awk "/${v}/" f'),
)  # fmt: skip
IN_INPUT = (
    *_rows("$ENV", "echo 'print $ENV{X}' | X=${v} perl", "echo \"print '${v}'\" | perl", "echo ${v} | perl -w -"),
    *_rows("ARGV", "echo 'puts ARGV[0]' | ruby - ${v}", "echo ${v} | ruby"),
    *_rows("process.argv", "echo 'console.log(process.argv[2])' | node - ${v}", "node <<EOF\nx(${v})\nEOF\n"),
    *_rows("$argv", "echo '<?php echo $argv[1];' | php -- ${v}", "echo ${v} | php"),
    *_rows("ENVIRON", "echo '{print ENVIRON[\"X\"]}' | X=${v} awk -f - f", "echo ${v} | awk -f - f", "echo ${v} | awk -f- f",
           "awk -f /dev/stdin f <<EOF\n${v}\nEOF\n"),
    *_rows("awk '", "X=${v} awk '{gsub(/a/, ENVIRON[\"X\"])} 1' f", "echo ${v} | sed -f - f", "echo ${v} | sed -nf - f",
           "echo ${v} | sed --file=/dev/stdin f"),
    *_rows("psql -v x=${v}", "psql -v x=${v} db <<'EOF'\nSELECT :'x'\nEOF\n", "psql db <<EOF\nSELECT '${v}'\nEOF\n"),
    *_rows("[sys.argv[1]]", "echo 'SELECT 1' | sqlite3 ${v}", "echo \"SELECT '${v}'\" | sqlite3 a.db",
           "mysql -u x db <<EOF\nSELECT '${v}'\nEOF\n"),
    *_rows("X=${v} make", "echo 'x: ; echo \"$$X\"' | X=${v} make -f -", "echo ${v} | make -f -"),
    *_rows("sh -s -- ", "sbatch job.sh ${v}", "sbatch <<EOF\n#!/bin/sh\necho ${v}\nEOF\n"),
    second("mapfile -C eval -c 1 a <<< ${v}", "f() { p; }; mapfile -C f -c 1 a <<< ${v}", "function", ("bash",)),
    second("mapfile -c1 -Ceval a <<< ${v}", "f() { p; }; mapfile -c1 -Cf a <<< ${v}", "function", ("bash",)),
    second("mapfile -c1 -C let a <<< ${v}", "f() { p; }; mapfile -c1 -Cf a <<< ${v}", "function", ("bash",)),
)  # fmt: skip
DATA = tuple(
    held(text, _ONE)
    for text in (
        "git commit -m ${v}", "git -c user.name=${v} commit", "git clone -c http.proxy=${v} ${v}", "git submodule add ${v} x",
        "git rebase ${v}", "make -j4 ${v}", "make -C ${v} X=${v}", "tar -xzf ${v} -C ${v}", "tar --checkpoint=${v} -cf a b",
        "ssh -o ConnectTimeout=${v} host true", "ssh -i ${v} -p ${v} host true", "scp -o StrictHostKeyChecking=${v} a b",
        "rsync -a ${v} host:${v}", "psql -h ${v} -v x=${v} -f q.sql", "echo ${v} | psql -f q.sql", "psql -d ${v} -c 'SELECT 1'",
        "mysql -h ${v} -e 'select 1' ${v}", "sqlite3 ${v} 'select 1'", "sbatch -J ${v} job.sh ${v}", "sbatch --export=X=${v} job.sh",
        "Rscript a.R -e ${v}", "R CMD BATCH ${v}", "julia a.jl ${v}", "lua a.lua -e ${v}", "echo ${v} | perl a.pl",
        "echo ${v} | perl -ne print", "echo ${v} | awk '{print}'", "echo ${v} | sed s/a/b/", "echo ${v} | sed -f x.sed",
        "awk -f x.awk ${v}", "echo ${v} | node a.js", "node --require ./x a.js ${v}", "echo ${v} | php -f a.php",
        "docker run --name mysql -e MYSQL_ROOT_PASSWORD=${v} mysql:8", "tmux new-session -d -s ${v}", "tmux kill-session -t ${v}",
        "parallel echo ::: ${v}", "echo ${v} | parallel -j4 gzip", "deno run a.ts ${v}", "bun run a.ts ${v}", "pwsh -File a.ps1 ${v}",
        "sg ${v} 'echo a'", "echo ${v} | sudo tee f", "apt-get install -y perl lua ${v}", "srun -n ${v} ./a ${v}", "env X=${v} make",
        "echo ${v} | git commit -F -", "echo ${v} | tar -cf a -T -", "echo ${v} | su x -c cat", "gnuplot -c f.gp ${v}",
        "echo ${v} | mysql -e 'select 1'",
    )
)  # fmt: skip
PROGRAMS = (*IN_WORDS, *IN_INPUT, *DATA)
