"""The pure parts: routes, waits, addresses, words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.model.alerts import AlertState
from sentinel.notify.addresses import key, masked
from sentinel.notify.messages import limit_of, plain
from sentinel.notify.outbox import LONGEST_RETRY_S, next_attempt
from sentinel.notify.router import Group, flush, hear
from sentinel.notify.settings import Route
from tests.notify.outside import NOW, RULE, firing


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mailto://alice:secret@smtp.example.com:25/?to=x", "mailto://***@smtp.example.com:25/***"),
        ("json://127.0.0.1:80", "json://127.0.0.1:80"),
        ("slack://TokenA/TokenB/TokenC", "slack://***"),
        ("tgram://123456:ABC/chat", "tgram://***"),
        ("discord://id/token", "discord://***"),
        ("json://[broken", "json://***"),
        ("whatever", "***"),
    ],
)
def test_an_address_is_shown_without_its_secret(url: str, shown: str) -> None:
    assert masked(url) == shown


@given(st.text())
def test_masking_and_naming_take_anything(url: str) -> None:
    assert masked(url)
    assert len(key(url)) == 12


@given(st.integers(1, 60), st.floats(0, 1), st.none() | st.floats(0, 1e7))
def test_waits_grow_to_a_bound_and_honour_the_other_side(attempts: int, jitter: float, wish: float | None) -> None:
    wait = next_attempt(attempts, NOW, jitter, wish) - NOW
    assert 3.9 < wait <= max(LONGEST_RETRY_S * 1.2, min(wish or 0.0, 6 * 3600.0)) + 1
    if wish is not None:
        assert wait >= min(wish, 6 * 3600.0) - 0.001


@pytest.mark.parametrize(
    ("expr", "limit"),
    [
        ("x < 60", "60"),
        ("rate(log_events_total[5m]) > bool 0.5", "0.5"),
        ("(a / b) >= 1e9", "1e9"),
        ("absent(x)", ""),
        ("a < 60\n  and b < 0.5", ""),
        ("a < b", ""),
    ],
)
def test_the_limit_is_read_where_there_is_only_one(expr: str, limit: str) -> None:
    assert limit_of(replace(RULE, expr=expr)) == limit


@given(st.text(max_size=300))
def test_plain_text_has_no_control_characters(text: str) -> None:
    said = plain(text)
    assert not any(ord(char) < 32 and char not in "\t\n" for char in said)
    assert "@everyone" not in said


CHANGES = st.lists(
    st.tuples(st.integers(0, 3), st.booleans(), st.booleans(), st.floats(0, 400)), min_size=1, max_size=40
)


@given(CHANGES)
def test_people_hear_of_ends_only_where_they_heard_of_beginnings(
    story: list[tuple[int, bool, bool, float]],
) -> None:
    """And what fires is always told in the end, whatever is heard in which order."""
    route = Route("oncall")
    group, at = Group("g", "oncall"), NOW
    believed: set[str] = set()
    firing_now: set[str] = set()

    def speak(until: float) -> None:
        nonlocal group
        while group.due is not None and group.due <= until:
            group, said = flush(group, max(group.due, NOW), route, frozenset())
            if said is not None:
                assert {m.alert.id for m in said.resolved} <= believed
                believed.difference_update(m.alert.id for m in said.resolved)
                believed.update(m.alert.id for m in said.firing)

    for which, fires, critical, gap in story:
        at += gap
        speak(at)
        alert = firing(at, severity="critical" if critical else "warning", job=f"job-{which}").alert
        # The fingerprint holds the severity; a member is a rule and its labels.
        if fires:
            firing_now.add(alert.id)
        else:
            firing_now.discard(alert.id)
            alert = replace(alert, state=AlertState.RESOLVED, resolved=at)
        group = hear(group, alert, at, route)
    speak(at + 1000)
    assert believed == firing_now
