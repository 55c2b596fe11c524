"""What leaves a template is plain data that the log of a run can write and read back; defaults for what is absent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from resile.languages.braces import Lazy
from resile.languages.jinja.outcomes import Success, error_of
from resile.languages.jinja.plain_values import as_result, plain_data
from resile.languages.jinja.templates import Unknown, render, render_data, value_of
from resile.languages.jinja.undefined import result_not_there
from resile.languages.references import MISSING, ValueRefused
from resile.model.failure import Failure
from resile.store.encoding import from_json, to_json


class Whole(int):
    """A whole number of a type of its own."""


class Fraction(float):
    """A fraction of a type of its own."""


ERROR = error_of(Failure("exit", "HTTP 503 from there", 22))
PLAIN = (str, int, float, bool, type(None), dict, list)


def plain(value: Any) -> bool:
    """Is a value of JSON's types through and through?"""
    if type(value) is dict:
        return all(type(name) is str and plain(inner) for name, inner in value.items())
    return all(plain(inner) for inner in value) if type(value) is list else type(value) in PLAIN


TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=8)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    TEXTS,
    TEXTS.map(Markup),
    TEXTS.map(as_result),
    TEXTS.map(lambda text: error_of(Failure("exit", text))),
    st.integers(-5, 5).map(Whole),
    st.floats(-5, 5).map(Fraction),
    st.just(Success("success")),
)
KEYS = st.one_of(TEXTS, TEXTS.map(Markup), TEXTS.map(lambda text: error_of(Failure("exit", text))))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(iter),
        st.lists(inner, max_size=3).map(as_result),
        st.dictionaries(KEYS, inner, max_size=3),
        st.dictionaries(TEXTS, inner, max_size=3).map(as_result),
        st.dictionaries(TEXTS, inner, max_size=3).map(lambda data: Lazy(lambda: list(data), data.__getitem__)),
    ),
    max_leaves=6,
)
FORMS = [
    "{{ v }}",
    "{{ v | default('x') }}",
    "{{ [v, {'k': v}] }}",
    "{{ {'a': (v,)} }}",
    "{{ v | e }}",
    "{{ v | string }}",
    "{{ v | list }}",
    "{{ v | tojson }}",
    "{{ v | tojson | from_json }}",
    "{{ v ~ '' }}",
    "{{ [v] | first }}",
    "{{ v if v else n }}",
    "{{ v | length }}",
    "{{ v.status }}",
    "{{ (v, v) | map('string') }}",
    "{{ {v: 1} }}",
    "{{ v * 3 }}",
    "{{ n ** 60 }}",
    "{{ (v | string)[:2] | upper }}",
    "<{{ v }}>",
    "{% for x in [v] %}{{ x }}{% endfor %}",
]


@settings(deadline=None)
@given(VALUES, st.sampled_from(FORMS))
def test_no_value_that_a_template_yields_can_stop_the_log(value: Any, text: str) -> None:
    """Whatever a value is and whatever is done with it, it is refused or it is what the log reads back."""
    known = {"v": value, "n": 7}
    try:
        found = render_data({"x": [text]}, lambda name: known.get(name, MISSING))
    except ValueRefused:
        return
    assert plain(found)
    assert from_json(to_json(found), Any) == found
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found)) == found


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (ERROR, "HTTP 503 from there"),
        (Success("success"), "success"),
        (Markup("&lt;"), "&lt;"),
        ({ERROR: [as_result({"e": ERROR})]}, {"HTTP 503 from there": [{"e": "HTTP 503 from there"}]}),
        ([Whole(3), Fraction(0.5), True], [3, 0.5, True]),
    ],
)
def test_a_type_of_its_own_becomes_plain(value: Any, data: Any) -> None:
    """A subclass of a plain type is that type, at any depth, as a value and as a key, and as text inside of text."""
    assert plain_data(value) == data
    assert plain(plain_data(value))
    assert plain(value_of("{{ v }}", {"v": value}.get))
    assert render("<{{ [v] }}>", {"v": value}.get) == f"<{msgspec.json.encode([data]).decode()}>"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (2**64, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        (float("nan"), "JSON"),
        (float("inf"), "JSON"),
        (object(), "no data"),
    ],
)
def test_what_no_log_could_keep_is_refused(value: Any, why: str) -> None:
    """A number that would be read back as another one, or an object, fails the step, which says why."""
    with pytest.raises(ValueRefused, match=f"the template `.*` can't be rendered: .*{why}"):
        value_of("{{ [v] }}", {"v": value}.get)


def test_data_that_is_too_deep_is_refused() -> None:
    """What no encoder could walk is no data, and text that looks like it stays text."""
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(ValueRefused, match="deeper than 100 levels"):
        value_of("{{ v }}", {"v": deep}.get)
    text = "[" * 100_000 + "]" * 100_000
    assert render_data("{{ v | trim }}", {"v": text}.get) == text


ABSENT: dict[str, Any] = {"hot": result_not_there("hot"), "cold": {"v": 3}, "workload": Lazy(list, lambda _: MISSING)}


def absent(name: str) -> Any:
    """A step that has not run, one that has, and an empty workload."""
    return ABSENT.get(name, MISSING)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ hot.v | default(cold.v) }}", 3),
        ("{{ hot.v.w[0]['x'] | default(cold.v) }}", 3),
        ("{{ workload.missing.deep | default('x') }}", "x"),
        ("{{ workload['missing'][0] | d('x') }}", "x"),
        ("{{ nobody.knows.this | default('x') }}", "x"),
        ("{{ cold.v | default(hot.v) }}", 3),
        ("{{ hot.v is defined }}", False),
        ("{{ 'a' if workload.missing.deep is defined else 'b' }}", "b"),
    ],
)
def test_a_default_counts_for_whatever_is_not_there(text: str, value: Any) -> None:
    """Also for a part of a step that has not run, of a missing value of the workload, and of a name nobody knows."""
    assert value_of(text, absent) == value


@pytest.mark.parametrize(
    "text",
    [
        "{{ workload.missing.deep }}",
        "<{{ workload.missing.deep }}>",
        "{{ workload.missing.deep == 1 }}",
        "{{ workload.missing.deep > 1 }}",
        "{{ 1 in workload.missing.deep }}",
        "{{ workload.missing.deep in [1] }}",
        "{{ workload.missing.deep | length }}",
        "{{ not workload.missing.deep }}",
        "{{ workload.missing.deep ~ 'x' }}",
        "{{ workload.missing.deep | tojson }}",
        "{% for x in workload.missing.deep %}{{ x }}{% endfor %}",
        "{{ cold.v | default(1) + workload.missing.deep }}",
    ],
)
def test_what_is_not_there_is_an_error_wherever_it_is_used(text: str) -> None:
    """Without a default every use of it is an error that names the path."""
    with pytest.raises(Unknown, match=r"`workload\.missing\.deep` is not defined"):
        value_of(text, absent)


def test_messages_speak_of_no_type_of_ours() -> None:
    """What Python says of a value that a template can't use speaks of texts, lists and mappings."""
    known = {"m": as_result({}), "l": as_result([]), "t": as_result("x"), "e": ERROR}
    for text in ("{{ m + 1 }}", "{{ l + 1 }}", "{{ t - 1 }}", "{{ e < 1 }}", "{{ m < l }}", "{{ l.nope }}"):
        with pytest.raises(ValueRefused) as refused:
            value_of(text, lambda name: known.get(name, MISSING))
        assert not any(word in refused.value.message for word in ("Result", "ErrorText", "Lazy", "resile"))
