"""The query language: lexer, parser, printer, vectorised and masked evaluation.

The names below are loaded when they are first used: reading an expression
needs no numpy, and a program that never evaluates one never loads it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentinel.promql.analysis import Reading, longest_range_s, metric_names, readings
    from sentinel.promql.check import type_of
    from sentinel.promql.errors import EvaluationError, PromQLError, Refused
    from sentinel.promql.evaluation import evaluate, evaluate_course, evaluate_range, select_range
    from sentinel.promql.notes import Note
    from sentinel.promql.parser import parse
    from sentinel.promql.printer import canonical
    from sentinel.promql.tree import Expr, walk

_HOMES = {
    "EvaluationError": "errors",
    "Expr": "tree",
    "Note": "notes",
    "PromQLError": "errors",
    "Reading": "analysis",
    "Refused": "errors",
    "canonical": "printer",
    "evaluate": "evaluation",
    "evaluate_course": "evaluation",
    "evaluate_range": "evaluation",
    "longest_range_s": "analysis",
    "metric_names": "analysis",
    "parse": "parser",
    "readings": "analysis",
    "select_range": "evaluation",
    "type_of": "check",
    "walk": "tree",
}

__all__ = [
    "EvaluationError",
    "Expr",
    "Note",
    "PromQLError",
    "Reading",
    "Refused",
    "canonical",
    "evaluate",
    "evaluate_course",
    "evaluate_range",
    "longest_range_s",
    "metric_names",
    "parse",
    "readings",
    "select_range",
    "type_of",
    "walk",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
