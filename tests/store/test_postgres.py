"""The PostgreSQL store's own promises: its address, its schema, a server that goes away, and its refusals."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from threading import Thread

import psycopg
import pytest
from msgspec.structs import replace

from resile.store.contract import Bell, JobRow
from resile.store.errors import LeaseHeld, StoreError, StoreMissing, StoreTooNew
from resile.store.open import default_output, exists, open_store
from resile.store.postgres.address import parse
from resile.store.postgres.schema import MIGRATIONS
from resile.store.postgres.store import PostgresStore
from tests.cluster import Cluster, private_cluster
from tests.store.conftest import PostgresPlace
from tests.store.samples import DEFINITION, WAIT_SECONDS_MAX, batch, entry, job, new_run, run_row, wait_for


@pytest.fixture
def url(cluster: Cluster) -> str:
    """The address of a schema that is not there yet."""
    return cluster.url(f"own_{next(PostgresPlace.numbers)}")


@pytest.fixture
def opened(url: str) -> Iterator[PostgresStore]:
    """A new store."""
    store = PostgresStore(parse(url))
    yield store
    store.close()


@pytest.fixture(scope="module")
def other_cluster() -> Iterator[Cluster]:
    """A server that tests may stop and start."""
    with private_cluster() as made:
        yield made


def asked(url: str, sql: str, *values: object) -> list[tuple[object, ...]]:
    """What a session of its own gets for a statement."""
    address = parse(url)
    with psycopg.connect(address.conninfo, options=f"-c search_path={address.schema}", autocommit=True) as db:
        found = db.execute(sql, values)
        return found.fetchall() if found.description else []


def test_an_address_is_shown_without_its_password() -> None:
    """Neither the password of the user nor a secret among the options is in the text for messages."""
    address = parse("postgres://ann:p%40ss@h1:5433,h2/db?schema=x&sslmode=require&password=hush&sslkey=/k")
    assert address.shown == "postgresql://ann@h1:5433,h2/db?schema=x&sslmode=require"
    assert address.schema == "x"
    assert address.conninfo == "postgresql://ann:p%40ss@h1:5433,h2/db?sslmode=require&password=hush&sslkey=%2Fk"
    assert parse("postgresql:///db").schema == "resile"


def test_a_schema_has_a_name_that_the_server_can_keep() -> None:
    """It would cut a longer one off, and two stores would be one."""
    assert parse(f"postgresql:///db?schema={'x' * 63}").schema == "x" * 63
    for name in ("x" * 64, "%C3%A9" * 32, "a%00b"):
        with pytest.raises(StoreError, match="`schema` must be one name of at most 63 bytes"):
            parse(f"postgresql:///db?schema={name}")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hush@h/db?schema=",
        "postgresql://ann:hush@h/db?schema=a&schema=b",
        "postgresql://ann:hush@h/db?nonsense",
        "postgresql://ann:hush@[h/db",
        "postgresql://ann:hush%zz@h/db",
        "postgresql://ann:hush@h/db?nonsense=1",
    ],
)
def test_a_wrong_address_is_refused_without_its_password(url: str) -> None:
    """The refusal says how an address is written, and shows nothing of this one."""
    with pytest.raises(StoreError) as refused:
        open_store(url)
    assert refused.value.code == "store-address"
    assert "hush" not in f"{refused.value} {refused.value.hint} {refused.value.where}"


def test_a_server_that_is_not_there_is_said_at_once(tmp_path: os.PathLike[str]) -> None:
    """Opening does not wait for it, and names the address without the password."""
    with pytest.raises(StoreError) as refused:
        open_store(f"postgresql://ann:hush@/db?host={tmp_path}")
    assert refused.value.code == "store-unreachable"
    assert f"postgresql://ann@/db?host={tmp_path} can't be reached" in refused.value.message
    assert "hush" not in f"{refused.value.message} {refused.value.hint}"


def test_reading_makes_no_schema(url: str) -> None:
    """A missing store is an error to a reader; the first writer makes it, beside what else is in the database."""
    assert not exists(url)
    with pytest.raises(StoreMissing):
        open_store(url, readonly=True)
    assert not exists(url)
    open_store(url).close()
    assert exists(url)
    reader = open_store(url, readonly=True)
    with pytest.raises(StoreError) as refused:
        reader.create_run(run_row(), DEFINITION, [])
    assert refused.value.code == "store-readonly"
    reader.close()


def test_a_database_of_another_encoding_is_refused_by_its_name(url: str) -> None:
    """It could not keep every text."""
    asked(url, "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(StoreError) as refused:
        open_store(url.replace("/postgres?", "/latin?"))
    assert refused.value.code == "store-encoding"
    assert refused.value.message.endswith(" has the encoding LATIN1, not UTF8")
    assert refused.value.hint == "make the database with ENCODING 'UTF8'"


def test_a_schema_of_another_program_is_refused(url: str) -> None:
    """Nothing is added to it."""
    schema = parse(url).schema
    asked(url, f"CREATE SCHEMA {schema}")
    asked(url, "CREATE TABLE runs (mine text)")
    with pytest.raises(StoreError) as refused:
        open_store(url)
    assert refused.value.code == "store-foreign"
    assert asked(url, "SELECT count(*) FROM pg_tables WHERE schemaname = %s", schema) == [(1,)]


def test_a_newer_schema_is_refused_and_an_older_one_brought_up_to_date(url: str) -> None:
    """A version that knows one migration more applies just that one; this one does not open the result."""
    address = parse(url)
    PostgresStore(address).close()
    known = len(MIGRATIONS)
    newer = (*MIGRATIONS, "CREATE TABLE later (n bigint)")
    for _ in range(2):
        PostgresStore(address, migrations=newer).close()
    assert asked(url, "SELECT count(*) FROM later") == [(0,)]
    for readonly in (False, True):
        with pytest.raises(
            StoreTooNew, match=f"has schema version {known + 1}; this Resile knows versions up to {known}"
        ):
            PostgresStore(address, readonly=readonly)


def test_threads_that_make_one_store_at_once_all_succeed(url: str) -> None:
    """One makes the tables, the others wait for it."""
    names: list[str] = []

    def make() -> None:
        store = PostgresStore(parse(url))
        names.append(store.identity())
        store.close()

    threads = [Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names) == 6
    assert len(set(names)) == 1


def test_texts_that_postgresql_can_not_hold_survive(opened: PostgresStore) -> None:
    """NUL, lone surrogates, the mark itself, tabs and backslashes come back, in rows, keys and the log."""
    odd = ("a\0b", "caf\udce9", '\x1a"x', "tab\tline\nback\\slash", "\\N", "é\u2028")
    jobs = [JobRow(number, text, text, 1) for number, text in enumerate(odd, 1)]
    run = opened.create_run(replace(run_row(), workflow=odd[0], output=odd[1]), DEFINITION, jobs)
    lease = opened.acquire_lease(run, 100.0, 60.0)
    writer = opened.writer()
    entries = [entry(number, 1) for number in range(1, len(odd) + 1)]
    for kept, text in zip(entries, odd, strict=True):
        kept.notes[0].data["text"] = text
    writer.submit(batch(lease, *entries))
    writer.flush()
    assert list(opened.jobs(run)) == jobs
    assert list(opened.entries(run)) == entries
    row = opened.run(run)
    assert row is not None
    assert (row.workflow, row.output) == odd[:2]


def test_a_lease_of_another_machine_ends_by_the_clock_of_the_database(opened: PostgresStore) -> None:
    """What the wall clock of this machine says does not matter."""
    run, lease = new_run(opened)
    url = f"{opened._address.conninfo}&schema={opened._address.schema}"
    sql = "UPDATE leases SET host = 'elsewhere', boot = 'other pid:[1]', expires_at = extract(epoch FROM now()) + %s"
    asked(url, sql, 3600)
    held = opened.lease(run, now=1e9)
    assert held is not None
    assert (held.host, held.token) == ("elsewhere", lease.token)
    with pytest.raises(LeaseHeld):
        opened.acquire_lease(run, now=1e9, seconds=60.0)
    asked(url, sql, -1)
    assert opened.lease(run, now=0.0) is None
    mine = opened.acquire_lease(run, now=0.0, seconds=60.0)
    assert mine.number > lease.number
    now = asked(url, "SELECT extract(epoch FROM now())::double precision")[0][0]
    assert isinstance(now, float)
    assert abs(mine.expires_at - 60.0 - now) < WAIT_SECONDS_MAX


def heard(bell: Bell) -> bool:
    """Wait for a ring, and for the next one from then on."""
    found = bool(select.select([bell.fileno()], [], [], WAIT_SECONDS_MAX)[0])
    bell.clear()
    return found


def test_a_request_rings_the_bell_of_its_run(url: str, opened: PostgresStore) -> None:
    """Those of other runs do not."""
    run, _ = new_run(opened)
    other, _ = new_run(opened)
    bell = opened.bell(run)
    # It rings once when it begins to listen, for what came before.
    assert heard(bell)
    assert bell.live
    surface = open_store(url)
    surface.request(other, 1.0, "cancel", {})
    surface.request(run, 1.0, "cancel", {})
    assert heard(bell)
    assert not select.select([bell.fileno()], [], [], 0)[0]
    surface.close()
    bell.close()


def test_every_session_is_taken_up_again_after_a_restart(other_cluster: Cluster) -> None:
    """Reads, short writes, the writer and the bell go on by themselves once the server is back."""
    store = PostgresStore(parse(other_cluster.url("restart")))
    run, lease = new_run(store)
    writer = store.writer()
    bell = store.bell(run)
    assert heard(bell)
    wait_for(writer, writer.submit(batch(lease, entry(1))))
    for seq, mode in ((3, "fast"), (5, "immediate")):
        other_cluster.stop(mode)
        ticket = writer.submit(batch(lease, entry(seq), jobs=(job(1, 5),)))
        starting = Thread(target=other_cluster.start)
        starting.start()
        store.renew_lease(lease, 101.0, 60.0)
        assert [row.id for row in store.runs()] == [run]
        assert store.request(run, 1.0, "cancel", {}) > 0
        wait_for(writer, ticket)
        starting.join()
        assert heard(bell)
        assert [kept.seq for kept in store.entries(run)] == list(range(1, seq + 1, 2))
    assert len(store.requests(run)) == 2
    bell.close()
    store.close()


def test_a_server_that_stays_away_is_given_up(other_cluster: Cluster) -> None:
    """After its patience every call says that the server can't be reached; what was committed is there later."""
    url = other_cluster.url("away")
    store = PostgresStore(parse(url), patience_seconds=0.2)
    run, lease = new_run(store)
    writer = store.writer()
    wait_for(writer, writer.submit(batch(lease, entry(1))))
    other_cluster.stop()
    try:
        for ask in (lambda: store.run(run), lambda: store.renew_lease(lease, 101.0, 60.0), store.has_changed):
            with pytest.raises(StoreError) as refused:
                ask()
            assert refused.value.code == "store-unreachable"
        writer.submit(batch(lease, entry(3)))
        with pytest.raises(StoreError) as stopped:
            writer.flush()
        assert stopped.value.code == "store-unreachable"
    finally:
        other_cluster.start()
    store.close()
    store = PostgresStore(parse(url))
    assert [kept.seq for kept in store.entries(run)] == [1]
    store.close()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_whose_answer_is_lost_happens_once(url: str, opened: PostgresStore, moment: str) -> None:
    """Whether the connection was lost before or after the server committed, the run is there once."""
    session = opened._session
    db, execute = session.db, session.db.execute

    def cut(sql: str, *values: object) -> object:
        """Lose the connection around the first COMMIT."""
        if sql != "COMMIT":
            return execute(sql, *values)
        if moment == "after":
            execute(sql)
        asked(url, "SELECT pg_terminate_backend(%s, 5000)", db.info.backend_pid)
        return execute("SELECT 1")

    db.execute = cut  # type: ignore[assignment, method-assign]
    run = opened.create_run(run_row(), DEFINITION, [job(1)])
    assert [row.id for row in opened.runs()] == [run]
    assert session.db is not db


def test_a_proxy_that_pools_by_transaction_is_refused(cluster: Cluster) -> None:
    """Settings and notifications of a session would get lost in it; one that pools by session is used."""
    with cluster.pooled("transaction") as address, pytest.raises(StoreError) as refused:
        open_store(f"{address}&schema=pooled")
    assert refused.value.code == "store-pooled"
    assert "pool_mode = session" in refused.value.hint
    with cluster.pooled("session") as address:
        store = open_store(f"{address}&schema=pooled")
        assert new_run(store)[0] == 1
        store.close()


def test_a_proxy_that_pools_by_statement_is_refused(cluster: Cluster) -> None:
    """Such a proxy knows no transactions; the refusal is the same."""
    with cluster.pooled("statement") as address, pytest.raises(StoreError) as refused:
        open_store(f"{address}&schema=pooled")
    assert refused.value.code == "store-pooled"


def test_a_proxy_that_takes_turns_is_refused(cluster: Cluster) -> None:
    """A pool that hands out its idle connections in turn gives each of two sessions another one, and is found out."""
    with cluster.pooled("transaction", "server_round_robin = 1") as address:
        with psycopg.connect(address) as one, psycopg.connect(address) as two:
            one.execute("SELECT 1")
            two.execute("SELECT 1")
        with pytest.raises(StoreError) as refused:
            open_store(f"{address}&schema=pooled")
    assert refused.value.code == "store-pooled"


@pytest.mark.parametrize("ask", [open_store, exists])
def test_a_refused_proxy_keeps_its_connections_as_they_were(cluster: Cluster, ask: Callable[[str], object]) -> None:
    """The settings of a store do not stay behind in a connection that others share."""
    settings = "SELECT current_setting('default_transaction_read_only'), current_setting('statement_timeout')"
    with cluster.pooled("transaction") as address:
        with pytest.raises(StoreError):
            ask(f"{address}&schema=pooled")
        with psycopg.connect(address) as other:
            assert other.execute(settings).fetchall() == [("off", "0")]


def test_damage_is_found(url: str, opened: PostgresStore) -> None:
    """Rows without their run are named, each table once."""
    run, _ = new_run(opened)
    assert opened.find_damage() == []
    asked(url, "DELETE FROM leases")
    asked(url, "DELETE FROM runs")
    assert opened.find_damage() == [f"a row of jobs belongs to run {run}, which is gone"]


def test_the_output_of_steps_is_in_the_state_folder(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    """Each database has a folder with its name."""
    monkeypatch.delenv("RESILE_OUTPUT_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = default_output(url)
    store = open_store(url)
    assert found == f"{tmp_path}/resile/output/{store.identity()}"
    store.close()
