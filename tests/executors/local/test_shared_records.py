"""What the launchers of servers wrote down about a run: the engine that takes the run over finds it, and no more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from resile.executors.contract import Ended, Lost
from resile.executors.fence import Fence
from resile.executors.local import processes, recovery, shared_records, wire
from resile.executors.local.executor import LocalExecutor
from resile.executors.local.shared_records import SharedRecords, narrow, profile_of, servers_of, widen, write_down
from resile.model.failure import LogRange

PROFILE = profile_of(7, 2)
LOG = LogRange("launcher/token-0-0")


def spool_of(server: Path, *lines: bytes, boot: str = "", token: str = "token") -> Path:
    """Write the spool of a server's launcher that is dead."""
    folder = server / wire.FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    author = recovery.Author(token, 4_000_000, 1, boot or processes.boot_id().decode(), "server")
    path = folder / f"{token}.spool"
    path.write_bytes(recovery.header_line(author) + b"".join(lines))
    return path


def end_of(job: int, profile: int = PROFILE, errno: int = 0) -> bytes:
    """The line of an attempt 1 that could not be started for this reason."""
    return wire.refused_line(wire.key_of(widen(profile, job), 1), 5.0, errno, b"exec")


def watch(folder: Path, besides: str = "") -> LocalExecutor:
    """An executor that only looks at what others left of the run."""
    return LocalExecutor(
        str(folder),
        slots=1,
        label="7:2",
        base_env={},
        directory=os.fsencode(folder),
        fence=Fence(str(folder), 1, lambda: None),
        starts=False,
        besides=(besides,),
    )


def test_numbers_have_room_for_run_epoch_and_job() -> None:
    """A number among those of all runs gives back what it was made of, also the largest ones."""
    largest = (1 << shared_records.EPOCH_BITS) - 1, (1 << wire.JOB_BITS) - 1
    for run, epoch, job in [(7, 2, 3), (1, 1, 1), (99, *largest)]:
        profile = profile_of(run, epoch)
        assert (shared_records.run_of(profile), shared_records.epoch_of(profile)) == (run, epoch)
        assert narrow(widen(profile, job)) == (profile, job)
    # The numbers are in the records of attempts that outlive their engine, so a newer one must read them alike.
    assert widen(profile_of(7, 2), 3) == 7 << 52 | 2 << 32 | 3


def test_a_run_knows_the_servers_that_drove_it(tmp_path: Path) -> None:
    """Each once, with its profile there; its own server may be left out, and a line that is damaged names none."""
    assert servers_of(str(tmp_path)) == {}
    for server in ("/srv/a b", "/srv/\udce9", "/srv/a b"):
        write_down(str(tmp_path), server, PROFILE)
    file = tmp_path / shared_records.POINTER
    assert file.read_bytes() == b"%d /srv/a b\n%d /srv/\xe9\n" % (PROFILE, PROFILE)
    assert file.stat().st_mode & 0o777 == 0o600
    with file.open("ab") as more:
        more.write(b"x /srv/c\n12")
    assert servers_of(str(tmp_path)) == {"/srv/a b": PROFILE, "/srv/\udce9": PROFILE}
    file.write_bytes(file.read_bytes() + b" /srv/d\n")
    assert servers_of(str(tmp_path), ("/srv/a b",)) == {"/srv/\udce9": PROFILE, "/srv/d": 12}


def test_the_end_of_an_attempt_is_found_in_the_spool_of_its_launcher(tmp_path: Path) -> None:
    """By the token of the launcher, among all servers; the same job of another run is another one."""
    for name in ("a", "b"):
        write_down(str(tmp_path), str(tmp_path / name), PROFILE)
    spool_of(tmp_path / "b", end_of(1, profile_of(8, 2), 3), end_of(2, profile_of(7, 1), 4), end_of(2, errno=5))
    found = shared_records.find_end(str(tmp_path), "token", 2, 1)
    assert isinstance(found, Ended)
    assert found.spawn_error == 5
    missing = [("token", 1, 1), ("token", 2, 2), ("other", 2, 1)]
    assert [shared_records.find_end(str(tmp_path), *words) for words in missing] == [None] * 3


def test_only_the_attempts_of_the_run_are_taken_with_the_latest_word_about_each(tmp_path: Path) -> None:
    """Under the numbers of its own jobs; of two spools the one that was written last counts."""
    older = spool_of(tmp_path / "a", end_of(1, errno=3), end_of(2, errno=4), token="older")
    newer = spool_of(tmp_path / "a", end_of(1, errno=5), end_of(3, profile_of(8, 2)), token="newer")
    (tmp_path / "a" / wire.FOLDER / "notes").write_bytes(older.read_bytes())
    os.utime(older, (100, 100))
    os.utime(newer, (200, 200))
    records = SharedRecords({str(tmp_path / "a"): PROFILE, str(tmp_path / "gone"): PROFILE})
    ends = {key: spooled.end for key, spooled in records.attempts.items()}
    assert {key: (end.job, end.spawn_error) for key, end in ends.items() if isinstance(end, Ended)} == {
        (1, 1): (1, 5),
        (2, 1): (2, 4),
    }
    assert len(ends) == 2
    assert {spooled.profile for spooled in records.attempts.values()} == {PROFILE}


@pytest.mark.parametrize(
    ("boots", "expected"), [((), "none"), (("former",), "former"), (("former", ""), "here"), (("", "former"), "here")]
)
def test_an_executor_says_whether_a_server_left_records(tmp_path: Path, boots: tuple[str, ...], expected: str) -> None:
    """Those of this boot count, wherever they are among those of former ones; a file that is no spool does not."""
    (tmp_path / "x" / wire.FOLDER).mkdir(parents=True)
    (tmp_path / "x" / wire.FOLDER / "empty.spool").touch()
    for number, boot in enumerate(boots):
        spool_of(tmp_path / str(number), boot=boot)
    for name in ("x", *map(str, range(len(boots)))):
        write_down(str(tmp_path), str(tmp_path / name), PROFILE)
    executor = watch(tmp_path)
    assert executor.records == expected
    executor.close()
    ours = watch(tmp_path, str(tmp_path / "0"))
    assert ours.records == ("here" if "" in boots[1:] else "former" if boots[1:] else "none")
    ours.close()


def test_a_spool_of_a_server_that_was_cut_proves_nothing(tmp_path: Path) -> None:
    """An end that was recorded and is missing shows it, unless the launcher itself dropped lines."""
    write_down(str(tmp_path), str(tmp_path / "server"), PROFILE)
    begins = b"B %s\n" % wire.key_of(widen(PROFILE, 1), 1)
    found = []
    for lines in ((begins, end_of(1)), (begins,), (b"C\n", begins), (end_of(1, profile_of(8, 2)),)):
        spool_of(tmp_path / "server", *lines)
        executor = watch(tmp_path)
        found.append(executor.lacks_end(1, 1, LOG))
        executor.find({(1, 1): True, (2, 1): True})
        assert isinstance(executor.reports()[-1], Lost)
        executor.close()
    assert found == [False, True, False, True]
