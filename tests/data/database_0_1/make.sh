#!/bin/sh
# Makes this database anew: sh make.sh RESILE, where RESILE is the program of the version that is to write it.
#
# Everything happens in /tmp/resile-fixture, because a run records its folders, and on a host called `fixture`, because
# a run that was killed leaves the name of the host that drove it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
resile=$(command -v "$1")
place=/tmp/resile-fixture
if [ "${2:-}" != inside ]; then
  rm -rf "$place"
  mkdir "$place"
  cp "$here"/flows/* "$place"
  env -i PATH=/usr/bin:/bin LANG=C.UTF-8 HOME="$place" \
    unshare --map-root-user --uts --pid --fork --mount-proc sh "$here/make.sh" "$resile" inside
  cp "$place/resile.db" "$here/resile.db"
  tar -C "$place" --sort=name --owner=0 --group=0 --numeric-owner -cf - output | gzip -n9 > "$here/output.tar.gz"
  rm -rf "$place"
  exit
fi

hostname fixture
cd "$place"
export RESILE_DB="$place/resile.db"
run() {
  code=$1
  shift
  found=0
  "$resile" run "$@" > /dev/null 2>&1 || found=$?
  [ "$found" = "$code" ] || { echo "$*: exit $found, not $code" >&2; exit 1; }
}

run 0 completed.yaml --input who=you
run 1 failed.yaml
run 0 items.yaml
run 0 parent.yaml
run 4 parked.yaml

# Both wait at a gate until it is certain that they are there; nobody opens it.
mkfifo gate reached
run 3 canceled.yaml &
canceled=$!
read -r _ < reached
"$resile" cancel 6 > /dev/null 2>&1
wait "$canceled"
unshare --pid --fork --kill-child --mount-proc "$resile" run killed.yaml > /dev/null 2>&1 &
killed=$!
read -r _ < reached
until "$resile" events ls 7 | grep -q 'attempt_started wait'; do :; done
kill -9 "$killed"
wait "$killed" || true
rm gate reached

run 0 prodigy.yml
run 0 torc.yaml
run 0 visor.yaml
run 0 noetl.yaml
run 0 squares.py

# What stands in the log beside the database goes into it, so that it is one file.
"$(dirname "$resile")/python" - << 'END'
import apsw

db = apsw.Connection("resile.db")
db.pragma("wal_checkpoint(TRUNCATE)")
db.execute("VACUUM").fetchall()
db.pragma("wal_checkpoint(TRUNCATE)")
db.close()
END
