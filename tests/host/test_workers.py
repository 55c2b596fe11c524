"""The workers of a server: what they are given, what counts of what they say, and when they are given up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from errno import EIO
from pathlib import Path

import pytest

from resile.engine.host import worker_place
from resile.engine.host import workers as workers_module
from resile.engine.host.workers import LISTED_SECONDS, LOOK_SECONDS_MAX
from resile.errors import ResileError
from resile.executors.contract import Adopted, Ended, Launch, Lost, Share, Started, Withdrawn
from resile.executors.shared.worker_output import WorkerOutput
from resile.executors.worker.messages import LEASE_SECONDS, Appeal, Beat, Chunk, End, Introduction, Start
from resile.executors.worker.shared_folder import attempt_folder, share
from resile.model.failure import LogRange
from resile.store.contract import RunRow
from resile.store.lease import boot_seconds
from resile.store.memory import MemoryStore
from resile.store.server_tables import Claim

from .book import RUN, Book, book_in, granted, take

MARK = "0" * 32
SEGMENT = "ab-1-1"


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    """The workers of a server, whose store is in memory."""
    with book_in(tmp_path, MemoryStore().server_tables()) as made:
        yield made


def past() -> float:
    """A moment at which no lease of a worker holds any more that was renewed before."""
    return boot_seconds() + LEASE_SECONDS + 1


def look_until(book: Book, end: float) -> None:
    """Look at the workers as often as a host does, until then: it was not stopped meanwhile."""
    now = boot_seconds()
    while now < end:
        now = min(now + LOOK_SECONDS_MAX / 2, end)
        book.workers.look(now)


def test_an_attempt_is_given_started_and_ended(book: Book) -> None:
    """The engine hears of the start and the end with the output, and then the worker may forget the attempt."""
    view, worker = book.drive(), book.register()
    (given,) = book.give(view, worker, 3)
    assert (given.run, given.epoch, given.job, given.attempt) == (RUN, 1, 3, 1)
    assert book.claims() == [3]
    began = time.time() - 2.0
    word = book.tell(worker, Start(given.token, began, 41), Chunk(given.token, "out", 0, b"hi\n"))
    assert (word.kill, word.gone, word.recorded, word.need, word.drain) == ([], [], [], {}, False)
    (started,) = view.reports()
    assert isinstance(started, Started)
    segment = started.log.segment
    assert started == Started(3, 1, began, 41, LogRange(segment, 0, 0, 0, 0))
    end = End(token=given.token, kind="ended", at=began + 1.0, started_at=began, pid=41, wait_status=256, out_length=3)
    assert book.tell(worker, end).recorded == []
    (ended,) = view.reports()
    assert ended == Ended(3, 1, began, began + 1.0, 256, 0.0, 0, LogRange(segment, 0, 3, 0, 0))
    assert view.read_output(ended.log, "out") == b"hi\n"
    view.acknowledge()
    assert book.workers.heartbeat(worker, Beat()).recorded == [given.token]
    book.workers.look(boot_seconds() + 2.0)
    assert book.claims() == []


def test_an_end_that_is_told_first_has_the_process_too(book: Book) -> None:
    """Where the start got lost, the end covers both: it has the number of the process."""
    view, worker = book.drive(), book.register()
    (given,) = book.give(view, worker, 1)
    book.tell(worker, End(token=given.token, kind="ended", at=5.0, started_at=4.0, pid=41))
    (ended,) = take(view)
    assert isinstance(ended, Ended)
    assert (ended.pid, ended.started_at, ended.at) == (41, 4.0, 5.0)


def test_no_time_is_later_than_now(book: Book) -> None:
    """The clock of a worker may be fast: its times are moved back together, so that a step keeps its duration."""
    view, worker = book.drive(), book.register()
    (given,) = book.give(view, worker, 1)
    ahead = time.time() + 3600.0
    book.tell(worker, Start(given.token, ahead, 41))
    book.tell(worker, End(token=given.token, kind="ended", at=ahead + 2.5, started_at=ahead))
    started, ended = take(view)
    assert isinstance(started, Started)
    assert isinstance(ended, Ended)
    assert started.at <= ended.at <= time.time() + 1.0
    assert ended.at - ended.started_at == pytest.approx(2.5)


def test_a_second_start_and_a_second_end_change_nothing(book: Book) -> None:
    """A worker tells again what it does not know to be heard; the engine hears it once."""
    view, worker = book.drive(), book.register()
    (given,) = book.give(view, worker, 1)
    end = End(token=given.token, kind="ended", at=5.0)
    for _ in range(2):
        assert book.tell(worker, Start(given.token, 4.0, 41)).need == {}
    for _ in range(2):
        assert book.tell(worker, end).need == {}
    assert [type(report) for report in take(view)] == [Started, Ended]


@pytest.mark.parametrize(("kind", "started"), [("withdrawn", False), ("stopped", True)])
def test_a_worker_that_stops_gives_attempts_back(book: Book, kind: str, started: bool) -> None:
    """The engine hears whether an attempt that was given back had begun."""
    view, worker = book.drive(), book.register()
    (given,) = book.give(view, worker, 1)
    book.tell(worker, End(token=given.token, kind=kind, at=5.0, out_length=9))  # type: ignore[arg-type]
    assert take(view) == [Withdrawn(1, 1, 5.0, started=started)]


def test_what_a_worker_has_lost_is_lost_for_the_run(book: Book) -> None:
    """The engine hears which worker lost it, why, and what there is of its output."""
    view, worker = book.drive(), book.register()
    (given,) = book.give(view, worker, 1)
    book.tell(worker, Chunk(given.token, "err", 0, b"ab"))
    book.tell(worker, End(token=given.token, kind="lost", at=5.0, why="its launcher died"))
    (lost,) = take(view)
    assert isinstance(lost, Lost)
    assert lost.log is not None
    assert (lost.why, lost.log.err_length) == ("worker one: its launcher died", 2)


def test_output_that_is_missing_is_asked_for(book: Book) -> None:
    """A gap, and an end before its output, name the offsets from which the worker sends again."""
    view, worker = book.drive(), book.register()
    (given,) = book.give(view, worker, 1)
    end = End(token=given.token, kind="ended", at=5.0, out_length=4, err_length=1)
    assert book.tell(worker, Chunk(given.token, "out", 2, b"cd")).need == {given.token: (0, 0)}
    assert book.tell(worker, Chunk(given.token, "out", 0, b"ab"), end).need == {given.token: (2, 0)}
    assert view.reports() == []
    rest = (Chunk(given.token, "out", 1, b"bcd"), Chunk(given.token, "err", 0, b"x"))
    assert book.tell(worker, *rest, end).need == {}
    (ended,) = view.reports()
    assert isinstance(ended, Ended)
    assert (view.read_output(ended.log, "out"), view.read_output(ended.log, "err")) == (b"abcd", b"x")


def test_what_is_not_the_workers_is_gone(book: Book) -> None:
    """A token that was never given, and one of another worker, change nothing; the worker is to end the attempt."""
    view, worker, other = book.drive(), book.register(), book.register("two")
    (given,) = book.give(view, worker, 1)
    told = (Start("nothing", 4.0, 1), Chunk(given.token, "out", 0, b"x"), End(token="old", kind="ended", at=5.0))
    assert book.tell(other, *told).gone == ["nothing", given.token, "old"]
    assert view.reports() == []
    welcome = book.workers.register(Introduction(name="two", id=other, held=["nothing"]))
    assert (welcome.id, welcome.gone, welcome.lease_seconds) == (other, ["nothing"], LEASE_SECONDS)


def test_attempts_of_a_run_that_waits_for_a_server_stay_with_their_worker(tmp_path: Path) -> None:
    """The next server knows claims from the store: they count while servers drive the run, and are dropped after."""
    store = MemoryStore()
    tables = store.server_tables()
    row = RunRow(id=0, workflow="t", dialect="native", definition="", status="running", created_at=0.0)
    run = store.create_run(row, b"", [], submit_priority=0)
    claims = [Claim(number, 1, 1, 1, "one-ab", token, 0.0) for number, token in ((run, "driven"), (run + 1, "ended"))]
    tables.add_claims(claims)
    with book_in(tmp_path, tables) as book:
        told = Introduction(name="one", id="one-ab", held=["driven", "ended"])
        assert book.workers.register(told).gone == ["ended"]
        assert book.tell("one-ab", Start("driven", 4.0, 1), Start("ended", 4.0, 2)).gone == ["ended"]
        book.workers.close()
    assert [claim.token for claim in tables.claims()] == ["driven"]


def test_the_next_server_adopts_what_runs(tmp_path: Path) -> None:
    """An engine that asks for an attempt of an earlier server hears of it when the worker tells that it runs."""
    tables = MemoryStore().server_tables()
    with book_in(tmp_path, tables) as first:
        worker = first.register(memory_bytes=100, slots=3)
        runs, _, _ = first.give(first.drive(), worker, 1, 2, 3, memory_bytes=30)
        first.workers.close()
    with book_in(tmp_path, tables) as second:
        view = second.drive(is_new=False)
        view.find({(1, 1): True, (2, 1): False, (3, 1): True})
        assert take(view) == []
        tokens = [claim.token for claim in tables.claims()]
        assert second.workers.register(Introduction(name="one", id=worker, memory_bytes=100, held=tokens)).gone == []
        assert second.workers.documents()[0].running == 3
        assert second.hub.places[-1].room.memory_bytes == 10
        second.tell(worker, Start(runs.token, 4.0, 41))
        (adopted,) = take(view)
        assert isinstance(adopted, Adopted)
        assert (adopted.job, adopted.at, adopted.pid) == (1, 4.0, 41)
        second.claim(worker, 1, held=[runs.token])
        withdrawn, lost = take(view)
        assert isinstance(withdrawn, Withdrawn)
        assert isinstance(lost, Lost)
        assert (withdrawn.job, withdrawn.started, lost.job, lost.why) == (2, False, 3, "worker one has no record of it")
        second.workers.look(boot_seconds() + 2.0)
        assert second.claims() == [1]


def test_what_the_worker_misses_is_settled_when_an_engine_asks(tmp_path: Path) -> None:
    """A worker may come back before the engine of the run does; its word counts when the engine asks."""
    tables = MemoryStore().server_tables()
    with book_in(tmp_path, tables) as first:
        worker = first.register()
        first.give(first.drive(), worker, 1)
        first.workers.close()
    with book_in(tmp_path, tables) as second:
        view = second.drive(is_new=False)
        second.register(id=worker)
        assert take(view) == []
        view.find({(1, 1): False})
        (report,) = take(view)
        assert isinstance(report, Withdrawn)


def test_claims_of_an_earlier_epoch_are_dropped(tmp_path: Path) -> None:
    """An engine that drives the next epoch knows nothing of the attempts of the last."""
    tables = MemoryStore().server_tables()
    with book_in(tmp_path, tables) as book:
        worker = book.register()
        book.give(book.drive(), worker, 1)
        view = book.drive(epoch=2, is_new=False)
        assert view.placed == {}
        book.workers.look(boot_seconds() + 2.0)
        assert book.claims() == []


def test_a_run_that_its_server_drives_again_hears_everything_again(book: Book) -> None:
    """What the engine before had not recorded comes once more, from the same worker."""
    view, worker = book.drive(), book.register()
    (given,) = book.give(view, worker, 1)
    book.tell(worker, Start(given.token, 4.0, 41))
    view.close()
    assert book.workers.documents()[0].running == 1
    view = book.drive(is_new=False)
    view.find({(1, 1): True})
    book.tell(worker, Start(given.token, 4.0, 41))
    assert [type(report) for report in take(view)] == [Adopted]


def test_a_silent_worker_is_lost_with_what_it_had(book: Book) -> None:
    """Its attempts are lost but those whose ends the engine has; its claim is answered, and it must register again."""
    view, worker = book.drive(), book.register(slots=2)
    given = book.give(view, worker, 1, 2)
    book.tell(worker, End(token=given[0].token, kind="ended", at=5.0))
    waiting = book.claim(worker)
    assert book.workers.count() == 1
    book.workers.look(boot_seconds() + LOOK_SECONDS_MAX / 2)
    assert [type(report) for report in view.reports()] == [Ended]
    look_until(book, past())
    (lost,) = view.reports()
    assert isinstance(lost, Lost)
    assert (lost.job, lost.why) == (2, "worker one was not heard of for 15 s")
    assert granted(waiting).attempts == []
    assert book.workers.count() == 0
    assert [(one.name, one.status, one.running) for one in book.workers.documents()] == [("one", "lost", 1)]
    assert book.hub.places == [book.hub.local]
    with pytest.raises(ResileError, match="there is no worker"):
        book.claim(worker)
    assert book.register(id=worker) == worker
    assert book.workers.documents()[0].status == "active"


def test_a_server_that_was_stopped_hears_its_workers_first(book: Book) -> None:
    """Leases begin again when the host looks later than it must; a worker that stays silent is lost all the same."""
    book.register()
    late = past()
    assert book.workers.look(late) == late + LOOK_SECONDS_MAX / 2
    assert book.workers.documents()[0].status == "active"
    soon = late + LEASE_SECONDS - LOOK_SECONDS_MAX
    for now in (soon - LOOK_SECONDS_MAX, soon):
        book.workers.look(now)
    assert book.workers.look(late + LEASE_SECONDS - 1.0) == late + LEASE_SECONDS
    assert book.workers.documents()[0].status == "active"
    book.workers.look(late + LEASE_SECONDS)
    assert book.workers.documents()[0].status == "lost"


def test_a_lost_worker_is_listed_for_a_while(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """After that nobody sees it any more."""
    book.register()
    look_until(book, past())
    book.workers.look(past())
    assert [one.status for one in book.workers.documents()] == ["lost"]
    monkeypatch.setattr(workers_module, "LISTED_SECONDS", LISTED_SECONDS * -1)
    book.workers.look(past())
    assert book.workers.documents() == []


def test_an_earlier_servers_worker_that_never_comes_is_given_up(tmp_path: Path) -> None:
    """Its attempts are lost after a lease; it is not listed, because this server never heard of it."""
    tables = MemoryStore().server_tables()
    tables.add_claims([Claim(RUN, 1, 1, 1, "one-ab", "t1", 0.0)])
    with book_in(tmp_path, tables) as book:
        view = book.drive(is_new=False)
        view.find({(1, 1): True})
        assert (book.workers.documents(), book.workers.count()) == ([], 0)
        with pytest.raises(ResileError, match="there is no worker"):
            book.workers.drain("one-ab")
        look_until(book, past())
        (lost,) = take(view)
        assert isinstance(lost, Lost)
        view.close()
        view = book.drive(is_new=False)
        assert view.placed == {}


def test_a_worker_that_drains_gets_nothing_more(book: Book) -> None:
    """Its claim is answered with the order, and so is the next; what it has it finishes."""
    view, worker = book.drive(), book.register()
    waiting = book.claim(worker)
    book.workers.drain(worker)
    assert granted(waiting).word.drain
    view.start([Launch(1, 1, (b"true",))])
    assert granted(book.claim(worker)) == granted(waiting)
    assert view.ready
    assert book.workers.documents()[0].status == "draining"
    assert book.workers.heartbeat(worker, Beat()).drain
    book.register(id=worker)
    assert [one.job for one in granted(book.claim(worker)).attempts] == [1]


def test_a_worker_that_leaves_is_forgotten_once_it_holds_nothing(book: Book) -> None:
    """It says that it drains, ends what it has, and leaves."""
    view, worker = book.drive(), book.register()
    (given,) = book.give(view, worker, 1)
    waiting = book.claim(worker)
    assert book.workers.heartbeat(worker, Beat(draining=True)).drain
    assert granted(waiting).word.drain
    book.workers.heartbeat(worker, Beat(leaving=True))
    assert book.workers.documents()[0].running == 1
    book.tell(worker, End(token=given.token, kind="ended", at=5.0))
    take(view)
    book.workers.heartbeat(worker, Beat(leaving=True))
    assert book.workers.documents() == []
    assert book.hub.places == [book.hub.local]


def test_a_kill_is_told_at_once_and_until_the_attempt_has_ended(book: Book) -> None:
    """A claim that waits is answered with it, the next claim too; what ended is not to be killed."""
    view, worker = book.drive(), book.register()
    (given,) = book.give(view, worker, 1)
    waiting = book.claim(worker)
    view.kill(1, 1)
    assert granted(waiting).word.kill == [given.token]
    assert granted(book.claim(worker)).word.kill == [given.token]
    assert book.tell(worker, End(token=given.token, kind="ended", at=5.0)).kill == []
    offer = book.claim(worker)
    assert not offer.answer.done()
    book.workers.end_claim("another", offer)
    assert not offer.answer.done()
    book.workers.end_claim(worker, offer)
    assert granted(offer).attempts == []
    again = book.claim(worker)
    book.workers.end_claim(worker, offer)
    assert not again.answer.done()


def test_a_second_claim_answers_the_first(book: Book) -> None:
    """A worker that hung up and asks again gets the attempt with the claim that waits."""
    view, worker = book.drive(), book.register()
    first, second = book.claim(worker), book.claim(worker)
    assert granted(first).attempts == []
    view.start([Launch(1, 1, (b"true",))])
    book.hub.assign()
    assert [one.job for one in granted(second).attempts] == [1]


def test_a_slot_is_free_again_after_an_attempt_that_never_arrived(book: Book) -> None:
    """A worker that comes back without the attempt that fills it is given the next one, and no more than that."""
    view, worker = book.drive(), book.register()
    book.give(view, worker, 1)
    view.start([Launch(2, 1, (b"true",)), Launch(3, 1, (b"true",))])
    assert not book.claim(worker, 2).answer.done()
    assert book.register(id=worker, held=[]) == worker
    assert [type(report) for report in take(view)] == [Withdrawn]
    assert [one.job for one in granted(book.claim(worker, 2)).attempts] == [2]
    assert not book.claim(worker, 2).answer.done()


def test_a_claim_says_how_much_memory_is_free(book: Book) -> None:
    """A step that needs more waits for a worker that has it; without a number all of the worker's memory counts."""
    view, worker = book.drive(), book.register(memory_bytes=100, slots=3)
    view.start([Launch(1, 1, (b"true",), share=Share(memory_bytes=60))])
    small = book.claim(worker, memory_bytes=59)
    assert not small.answer.done()
    assert [one.job for one in granted(book.claim(worker, memory_bytes=60)).attempts] == [1]
    view.start([Launch(2, 1, (b"true",), share=Share(memory_bytes=40)), Launch(3, 1, (b"true",))])
    assert [one.job for one in granted(book.claim(worker, 2)).attempts] == [2, 3]


def test_a_worker_gets_no_more_than_it_claims(book: Book) -> None:
    """Two attempts that together need more memory than is free there are given one after the other."""
    view, worker = book.drive(), book.register(slots=2)
    view.start([Launch(job, 1, (b"true",), share=Share(memory_bytes=40)) for job in (1, 2)])
    assert [one.job for one in granted(book.claim(worker, 2, memory_bytes=79)).attempts] == [1]
    assert [one.job for one in granted(book.claim(worker, 1)).attempts] == [2]
    view.start([Launch(3, 1, (b"true",))])
    assert not book.claim(worker, 0).answer.done()
    assert not book.claim(worker, 1).answer.done()


def test_a_closed_server_refuses_workers(book: Book) -> None:
    """The claims that wait are answered, and what workers have is for the next server."""
    view, worker = book.drive(), book.register()
    book.give(view, worker, 1)
    waiting = book.claim(worker)
    book.workers.close()
    assert granted(waiting).attempts == []
    with pytest.raises(ResileError, match="the server stops"):
        book.workers.claim(worker, Appeal(slots=1))
    with pytest.raises(ResileError, match="the server stops"):
        book.register()
    assert book.claims() == [1]


def test_a_name_with_the_id_of_another_worker_gets_one_of_its_own(book: Book) -> None:
    """An id belongs to a name; a worker of another name is a new one."""
    first = book.register("one")
    second = book.register("two", id=first)
    assert second.rpartition("-")[0] == "two"
    assert len({one.id for one in book.workers.documents()}) == 2


@pytest.mark.parametrize("waits", [True, False])
def test_output_in_a_shared_folder_may_come_late(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """The end counts once the output is seen; where it never is, the attempt ends with output that is lost."""
    if not waits:
        monkeypatch.setattr(worker_place, "SHARED_SECONDS_MAX", 0.0)
    shared = share(str(tmp_path / "shared"), MARK)
    view, worker = book.drive(), book.register(shared_output=shared)
    (given,) = book.give(view, worker, 1)
    end = End(token=given.token, kind="ended", at=5.0, out_length=3, segment=SEGMENT)
    folder = Path(attempt_folder(shared.path, RUN, 1, given.token), "launcher")
    folder.mkdir(parents=True)
    (folder / f"{SEGMENT}.o").write_bytes(b"ab")
    book.tell(worker, Start(given.token, 4.0, 41, SEGMENT))
    for _ in range(2):
        assert book.tell(worker, end).need == {}
    if waits:
        assert [type(report) for report in view.reports()] == [Started]
        # The wait counts from the first word of the end.
        monkeypatch.setattr(worker_place, "SHARED_SECONDS_MAX", 0.0)
        book.tell(worker, end)
        assert view.reports() == []
        (folder / f"{SEGMENT}.o").write_bytes(b"abc")
        book.tell(worker, end)
        (ended,) = view.reports()
        assert isinstance(ended, Ended)
        assert (ended.spawn_error, view.read_output(ended.log, "out")) == (0, b"abc")
    else:
        _, ended = view.reports()
        assert isinstance(ended, Ended)
        assert (ended.spawn_error, ended.spawn_stage) == (EIO, "output")


def test_a_worker_with_short_attempts_gets_some_ahead(book: Book) -> None:
    """Ends teach how long attempts take: while they are short a worker gets more than it has slots for."""
    view, worker = book.drive(), book.register()
    for job in range(1, 41):
        (given,) = book.give(view, worker, job)
        book.tell(worker, End(token=given.token, kind="ended", at=5.0, started_at=5.0))
        take(view)
    view.start([Launch(job, 1, (b"true",)) for job in range(41, 61)])
    assert len(granted(book.claim(worker, 20)).attempts) == 7
    longer, other = book.register("two"), book.drive(epoch=2)
    view.drain()
    for job in range(1, 41):
        (given,) = book.give(other, longer, job)
        book.tell(longer, End(token=given.token, kind="ended", at=7.0, started_at=5.0))
        take(other)
    other.start([Launch(job, 1, (b"true",)) for job in range(41, 61)])
    assert len(granted(book.claim(longer, 20)).attempts) == 1


def test_a_chunk_of_a_found_attempt_continues_what_is_there(tmp_path: Path) -> None:
    """The next server measures the output that the last one kept."""
    WorkerOutput(str(tmp_path), "t1", "one", is_new=True).keep("out", 0, b"abc")
    assert WorkerOutput(str(tmp_path), "t1", "one", is_new=False).sizes == (3, 0)
