"""`sentinel notify`, without a daemon: its arguments and its words."""

from __future__ import annotations

import argparse

import pytest

from sentinel.cli import notify


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    notify.add_arguments(parser)
    return parser.parse_args(words)


def test_its_verbs() -> None:
    assert parsed("test", "oncall").receiver == "oncall"
    assert parsed("outbox", "--json").json
    with pytest.raises(SystemExit):
        parsed()


def test_the_outbox_says_what_waits_for_whom_and_why() -> None:
    letter = {
        "title": "CRITICAL: llama runs out of memory",
        "receiver": "oncall",
        "address": "mailto://***@smtp.example.com",
        "created": 100.0,
        "attempts": 3,
        "next_at": 230.0,
        "error": "connection refused",
    }
    assert notify.waiting([letter], 220.0) == [
        "CRITICAL: llama runs out of memory  →  oncall (mailto://***@smtp.example.com), 2m old",
        "  3 attempts, again in 10s: connection refused",
    ]
    assert notify.waiting([], 0.0) == ["everything has been delivered"]


def test_a_test_says_what_became_of_each_address() -> None:
    said = {
        "receiver": "oncall",
        "ok": False,
        "deliveries": [
            {"address": "slack://***", "delivered": True, "error": None},
            {"address": "json://x", "delivered": False, "error": "404"},
        ],
    }
    assert notify.tested(said) == ["oncall: slack://***: delivered", "oncall: json://x: failed: 404"]
