"""What `resile check` says of a value that is read as code, and how to write it so that the value stays a value."""

from __future__ import annotations

COMPUTED = "computed"
FILE = "file"
HINTS = {
    "eval": "keep the code in single quotes: x=${…}; eval '… \"$x\" …'",
    "sh -c": "pass it as an argument: sh -c '… \"$1\"' sh ${…}",
    "sh": "pass it as an argument, and quote the code: sh -s -- ${…} <<'EOF', with \"$1\" in it",
    "su -c": "pass it as an argument: su -c '… \"$1\"' -- USER sh ${…}",
    "env -S": "pass it as an argument of its own: env -S 'COMMAND …' ${…}",
    "xargs sh -c": "pass it as an argument: xargs -I{} sh -c '… \"$1\"' sh {}",
    "functions": 'write a function that has "$x"',
    "flock -c": "pass it as an argument: flock FILE sh -c '… \"$1\"' sh ${…}",
    "script -c": "pass it as an environment variable: export X=${…}; script -c '… \"$X\"'",
    "watch": "let it run the words as they are: watch -x COMMAND ${…}",
    "parallel": "pass it as an environment variable: export X=${…}; parallel '… \"$X\" …'",
    "ssh": "pass it on standard input: printf '%s\\n' ${…} | ssh HOST 'read -r x; … \"$x\"'",
    "source": 'set a variable first: x=${…}, and write "$x" in quoted code',
    "python -c": "pass it as an argument: python3 -c '… sys.argv[1] …' ${…}",
    "python": "pass it as an argument, and quote the code: python3 - ${…} <<'EOF', with sys.argv[1] in it",
    "perl -e": "pass it as an environment variable: X=${…} perl -e '… $ENV{X} …'",
    "ruby -e": "pass it as an argument: ruby -e '… ARGV[0] …' -- ${…}",
    "node -e": "pass it as an argument: node -e '… process.argv[1] …' -- ${…}",
    "php -r": "pass it as an argument: php -r '… $argv[1] …' -- ${…}",
    "awk": "pass it as an environment variable: X=${…} awk '… ENVIRON[\"X\"] …'",
    "sed": "pass it to another program as an environment variable: X=${…} awk '{gsub(/…/, ENVIRON[\"X\"])} 1'",
    "fish -c": "pass it as an argument: fish -c '… $argv[1]' ${…}",
    "pwsh -c": "pass it as an environment variable: export X=${…}; pwsh -c '… $env:X …'",
    "nu -c": "pass it as an environment variable: export X=${…}; nu -c '… $env.X …'",
    "lua -e": "pass it as an environment variable: export X=${…}; lua -e '… os.getenv(\"X\") …'",
    "R -e": "pass it as an environment variable: export X=${…}; Rscript -e '… Sys.getenv(\"X\") …'",
    "julia -e": "pass it as an argument: julia -e '… ARGS[1] …' ${…}",
    "deno eval": "pass it as an environment variable: export X=${…}; deno eval '… Deno.env.get(\"X\") …'",
    "octave --eval": "pass it as an environment variable: export X=${…}; octave --eval '… getenv(\"X\") …'",
    "matlab -batch": "pass it as an environment variable: export X=${…}; matlab -batch '… getenv(\"X\") …'",
    "gnuplot -e": "pass it as an argument of a script: gnuplot -c FILE ${…}, with ARG1 in it",
    "SQL": "give it to the database as a parameter: python3 -c '… execute(…, [sys.argv[1]]) …' ${…}",
    "psql": "pass it as a variable: psql -v x=${…} -f FILE, with :'x' in it",
    "make --eval": "pass it as an environment variable: X=${…} make, with $$X in the recipe",
    "sbatch --wrap": 'pass it as an argument of a script: sbatch FILE ${…}, with "$1" in it',
    "git": 'pass it as an environment variable: export X=${…}, and write "$X" in quoted code',
    "tar": 'pass it as an environment variable: export X=${…}, and write "$X" in quoted code',
    "ssh -o": 'pass it as an environment variable: export X=${…}, and write "$X" in quoted code',
    "tmux": 'pass it as a variable of the session: tmux set-environment X ${…}, and write "$X" in quoted code',
    FILE: "quote the code of the file (<<'EOF'), and pass the value as an argument: sh FILE ${…}, with \"$1\" in it",
    "PS1": "let the shell expand the variable when it prints: export X=${…}; PS1='$X '",
    "print -P": 'let zsh expand the variable itself: print -r -- "$x"',
    "qualifier": 'compare the value in a test: for f in *; do [[ … "$x" ]] && …; done',
    COMPUTED: "write its name: NAME ${…}",
    "trap": "let the trap expand the variable when it runs: trap '… \"$x\"' EXIT",
    "alias": 'write a function that has "$x" in place of the alias',
    "PS4": "let the shell expand the variable when it prints: PS4='$x '",
    "BASH_ENV": "let bash expand the variable when it starts: export X=${…} and BASH_ENV='$X'",
    "ENV": "let the shell expand the variable when it starts: export X=${…} and ENV='$X'",
    "compgen": "let bash expand the variable: compgen -W '$x'",
    "mapfile": "write a function and name it",
    "list": 'write declare -a x=("$y")',
    ">&": 'write > "$x" 2>&1',
}
"""How to write each of them so that the value stays a value."""


def complaint(form: str) -> str:
    """What is wrong with a value that is read in this form."""
    if form == COMPUTED:
        return "the name of the command is computed, so it may read the value as code"
    if form == FILE:
        return "it gets into a file that is run, which reads the value as code"
    if form == "qualifier":
        return "zsh runs a glob qualifier, in the parentheses of `*(…)`, as code"
    return f"`{form}` reads the value a second time, as code"
