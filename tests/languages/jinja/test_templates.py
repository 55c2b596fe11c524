"""Jinja as playbooks use it: types, unknown names, the sandbox, and values that never become code or SQL."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resile.languages.braces import Lazy
from resile.languages.jinja.plain_values import as_result
from resile.languages.jinja.sql import render_sql
from resile.languages.jinja.templates import Unknown, holds, problem, render, render_data, render_url, value_of
from resile.languages.jinja.undefined import result_not_there
from resile.languages.references import MISSING, ValueRefused

KNOWN: dict[str, Any] = {
    "n": 3,
    "w": {"items": [1, 2], "keys": "k"},
    "step": as_result({"n": 1, "data": {"deep": 2}}),
    "rows": as_result([{"a": 5}]),
    "text": as_result("out"),
    "skipped": result_not_there("skipped"),
    "lazy": Lazy(lambda: ["a"], lambda name: {"a": 1}.get(name, MISSING)),
}


TEXTS: dict[str, Any] = {"zip": "007", "digits": "12", "no": "false", "d": {"a": [1]}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ digits }}", "12"),
        ("{{ d['a'][0] }}", 1),
        ("{{ digits | default('x') }}", "12"),
        ("{{ d | tojson }}", {"a": [1]}),
        ("{{ digits }}{{ digits }}", 1212),
        ("{{ zip | trim }}", "007"),
        ("-{{ digits }}.5", -12.5),
        ("{{ 'true' if digits else 'false' }}", True),
        ("{{ no | upper }}", False),
        ("{{ 'None' }}", None),
        ("{ {{ digits }}", "{ 12"),
        ("12", "12"),
        ("false", "false"),
    ],
)
def test_text_among_data_is_read_as_what_it_says(text: str, value: Any) -> None:
    """A name keeps its type and text of the file stays text; what else a template writes is data where it looks so."""
    found = render_data([{"x": text}], lambda name: TEXTS.get(name, MISSING))
    assert found == [{"x": value}]
    assert type(found[0]["x"]) is type(value)


def find(name: str) -> Any:
    """The values that these tests know."""
    return KNOWN.get(name, MISSING)


def test_what_a_filter_gives_one_by_one_is_a_list() -> None:
    """Lists that come bit by bit are lists, as values, inside others and as text; what is no data is refused."""
    assert value_of("{{ w['items'] | map('string') }}", find) == ["1", "2"]
    assert value_of("{{ [w['items'] | select('odd')] }}", find) == [[1]]
    assert value_of("{{ {'a': 1}.items() }}", find) == [["a", 1]]
    assert render("<{{ w['items'] | map('string') }}>", find) == '<["1","2"]>'
    for text in ("{{ 'a'.upper }}", "{{ ['a'] | map('nosuch') }}", "{{ w['items'] | map('length') }}"):
        with pytest.raises(ValueRefused, match="can't be rendered"):
            value_of(text, find)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ w.items }}", [1, 2]),
        (" {{ n + 1 }} ", 4),
        ("<{{ n }}>", "<3>"),
        ("{{ w }}", {"items": [1, 2], "keys": "k"}),
        ("a {{ w.items }}", "a [1,2]"),
        ("{{ step.data.deep }}", 2),
        ("{{ step.deep }}", 2),
        ("{{ step.result.n }}", 1),
        ("{{ rows.command_0[0].a }}", 5),
        ("{{ rows.rows }}", [{"a": 5}]),
        ("{{ text.stdout }}", "out"),
        ("{{ skipped.x if skipped else 'none' }}", "none"),
        ("{{ nothing | default('x') }}", "x"),
        ("{% for i in w.items %}{{ i }};{% endfor %}", "1;2;"),
        ("{% if n > 2 %}yes{% else %}no{% endif %}", "yes"),
        ("{{ {'a': n} | tojson }}", '{"a": 3}'),
        ("{{ 'a' | b64encode }}", "YQ=="),
        ("plain", "plain"),
    ],
)
def test_values_keep_their_types(text: str, value: object) -> None:
    """One output is the value itself, anything else is text."""
    assert value_of(text, find) == value


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("{{ nope }}", ": `nope` is not defined$"),
        ("{{ nope.a['b c'][0] }}", r": `nope\.a\['b c'\]\[0\]` is not defined$"),
        ("{{ w.nope.x }}", r": `w\.nope\.x` is not defined$"),
        ("{{ w['keys'] }} {{ step.keys_ }} {{ n }}", r": `step\.keys_` is not defined$"),
        ("{{ rows[5].a }}", r": `rows\[5\]\.a` is not defined$"),
        ("{{ rows.typo }}", r": `rows\.typo` is not defined$"),
        ("{{ lazy.typo }}", r": `lazy\.typo` is not defined$"),
        ("{{ lazy['typo'].x > 1 }}", r": `lazy\.typo\.x` is not defined$"),
        ("{% for row in rows %}{{ row.b.c }}{% endfor %}", r": `row\.b\.c` is not defined$"),
        ("{{ [w.nope] }}", r": `w\.nope` is not defined$"),
        ("{{ w.nope.upper() }}", r": `w\.nope\.upper` is not defined$"),
        ("{{ [1] | map(attribute='zz') | list }}", r": `zz` is not defined$"),
        ("{{ skipped }}", ": `skipped` is not defined: the step 'skipped' has no result here$"),
        ("{{ skipped.a.b + 1 }}", r": `skipped\.a\.b` is not defined: the step 'skipped' has no result here$"),
    ],
)
def test_an_unknown_name_is_said(text: str, name: str) -> None:
    """What a template needs and nobody knows is named."""
    with pytest.raises(Unknown, match=name):
        value_of(text, find)


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__ }}",
        "{{ w.items.append(1) }}",
        "{{ n ** 99999 ** 9 }}",
        "{{ 'a' * 99999999 }}",
        "{{ range(999999999) | list }}",
        "{{ text.__init__.__globals__ }}",
        "{{ n / 0 }}",
    ],
)
def test_templates_can_do_no_harm(text: str) -> None:
    """What reaches out of the sandbox, or grows without bounds, is refused."""
    with pytest.raises(ValueRefused):
        value_of(text, find)


def test_statements_that_are_not_run_are_refused_when_a_file_is_loaded() -> None:
    """A template that loads others, or defines functions, has a problem."""
    for text in ("{% import 'x' as y %}", "{% macro f() %}{% endmacro %}", "{% raw", "{{ a b }}", "{{ f(" * 400):
        assert problem(text), text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n == 3", True),
        ("{{ n == 3 }}", True),
        ("'false'", False),
        ("{{ '' }}", False),
        ("{{ w.items | length == 3 }}", False),
        ("skipped", False),
        ("n is defined and nope is not defined", True),
        ("skipped.a.b", False),
        ("skipped.a is not defined", True),
        ("nope.a is defined", False),
    ],
)
def test_conditions(text: str, value: bool) -> None:
    """The braces of a condition may be left out; falsy texts are false."""
    assert holds(text, find) is value


def test_a_value_can_not_lead_a_url_elsewhere() -> None:
    """Only a value at its beginning is an address; others are parts of the path or of the query."""
    values = {"base": "http://h:1", "evil": "a/../b?x=1#y&z=2", "n": 1}
    url = render_url("{{ base }}/p/{{ evil }}?q={{ evil }}&n={{ n }}", lambda name: values.get(name, MISSING))
    assert url == "http://h:1/p/a/../b%3Fx%3D1%23y%26z%3D2?q=a/../b%3Fx%3D1%23y%26z%3D2&n=1"


PLACES = [
    "select '{{ v }}'",
    "select 'a' || '{{ v }}' || 'b'",
    'select 1 as "{{ v }}"',
    "select 1 -- {{ v }}\n",
    "select /* {{ v }} */ 1",
]


@given(st.text(alphabet=st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=20))
def test_no_value_becomes_sql(value: str) -> None:
    """Whatever a text holds, the database reads one statement, and in quotes exactly that text."""
    connection = sqlite3.connect(":memory:")
    known = {"v": value}
    for text in PLACES:
        rows = connection.execute(render_sql(text, lambda name: known.get(name, MISSING))).fetchall()
        assert len(rows) == 1
    quoted = render_sql(PLACES[0], lambda name: known.get(name, MISSING))
    assert connection.execute(quoted).fetchone() == (value,)
    # Alone it is a text, or a plain name, which stands for a column and can't be more.
    alone = render_sql("select {{ v }}", lambda name: known.get(name, MISSING))
    if alone.startswith("select '"):
        assert connection.execute(alone).fetchone() == (value,)
    else:
        assert value.replace("_", "a").replace(".", "a").isalnum()


@pytest.mark.parametrize(
    ("text", "value", "found"),
    [
        ("select {{ v }}", 5, "select 5"),
        ("select 1-{{ v }}", -5, "select 1- -5"),
        ("select {{ v }}", None, "select NULL"),
        ("select {{ v }}", True, "select TRUE"),
        ("from public.{{ v }}", "table_1", "from public.table_1"),
        ("drop index idx_{{ v }}_email", "t1", "drop index idx_t1_email"),
        ("select $json${{ v | tojson }}$json$", {"a": "it's"}, """select $json${"a": "it's"}$json$"""),
        ("""select '{{ v | replace("'", "''") }}'""", "it's", "select 'it''s'"),
        ("select E'{{ v }}'", "a\\'b", "select E'a\\\\''b'"),
        ("where a = {{ v }}", "a", "where a = 'a'"),
        ("where a ilike {{ v }}", "a", "where a ilike 'a'"),
        ("insert into t values ({{ v }}, 1), (2, {{ v }})", "now", "insert into t values ('now', 1), (2, 'now')"),
        ("values (1); select {{ v }}", "a", "values (1); select a"),
        ("select /* /* */ {{ v }} */ 1", "*/ x", "select /* /* */ * / x */ 1"),
        ("select E'a'\n'{{ v }}'", "\\' x", "select E'a'\n'\\\\'' x'"),
        ("select my_e'{{ v }}'", "\\", "select my_e'\\'"),
        ("select 1$${{ v }}$$", "'; x", "select 1$$'; x$$"),
        ("DO $$ BEGIN PERFORM '{{ v }}'; END $$", "a'b", "DO $$ BEGIN PERFORM 'a''b'; END $$"),
        (
            "create function f() returns int as $f$ select E'{{ v }}' $f$",
            "\\",
            "create function f() returns int as $f$ select E'\\\\' $f$",
        ),
        ("{{ v }}", "select 1", "select 1"),
        ("{{ v }}", ["select 1", "select 2"], "select 1;\nselect 2"),
    ],
)
def test_values_are_written_for_their_place(text: str, value: object, found: str) -> None:
    """Numbers, names, texts and whole statements each have their form."""
    assert render_sql(text, lambda _: value) == found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("select $x${{ v }}$x$", "a$x$; drop table t; --"),
        ("select idx_{{ v }}", "a b"),
        ("select E{{ v }}", "\\' ; drop"),
        ("select '{{ v }}'", "a\0b"),
        ("select U&'{{ v }}'", "x"),
        ("do 'begin perform {{ v }}; end'", "x"),
        ("do $$ begin execute 'select {{ v }}'; end $$", "x"),
        ("do $$ begin perform '{{ v }}'; end $$", "$$; drop table t"),
        ("select /* *{{ v }} */ 1", "/; drop table t"),
        ("select $x$ {{ v[0] }}{{ v[1] }} $x$", ["a$", "x$; drop table t; --"]),
        ("select {{ v }}", float("nan")),
    ],
)
def test_a_value_that_fits_nowhere_is_refused(text: str, value: object) -> None:
    """Where a value would end its quotes or join a word, the step fails before anything runs."""
    with pytest.raises(ValueRefused):
        render_sql(text, lambda _: value)


def test_a_list_of_texts_is_rendered_each() -> None:
    """Text is text, also where it holds what Jinja prints for nothing."""
    assert render("{{ x }}|{{ y }}", {"x": None, "y": False}.get) == "|false"
