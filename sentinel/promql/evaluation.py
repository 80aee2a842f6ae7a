"""Evaluation: an expression, a reader and one time or many, to values with their mask."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.promql import aggregation, elementwise, histograms, joining, limits, over_time, rates, relabel
from sentinel.promql.analysis import DEFAULT_LOOKBACK_S, shared_parts
from sentinel.promql.check import type_of
from sentinel.promql.errors import EvaluationError
from sentinel.promql.frames import (
    Frame,
    Ints,
    all_false,
    constant,
    empty,
    every,
    joined,
    memo,
    named,
    single,
    with_values,
)
from sentinel.promql.notes import Level, Note
from sentinel.promql.numbers import go_g, openmetrics_float
from sentinel.promql.reading import Kernel, Samples, milliseconds, newest, through_windows
from sentinel.promql.series import Block, Course, Floats, Matrix, Scalar, SeriesReader, Text, Value, Vector
from sentinel.promql.tree import (
    SET,
    Aggregate,
    At,
    Binary,
    Call,
    Expr,
    Number,
    Paren,
    Range,
    Selector,
    String,
    Subquery,
    Type,
    Unary,
    bare,
)

DEFAULT_STEP_S = 60.0
"""The step of a subquery that names none."""
MOST_STEPS = 2_000_000
_WIDEST_LOOKBACK_S = 600.0
"""How far back an instant selector reads where neither the caller nor the reader says what is enough."""
_KEEPS_NAME = frozenset({"last_over_time", "first_over_time"})
_COUNTERS = frozenset({"rate", "increase"})
_COUNTER_ENDINGS = ("_total", "_sum", "_count", "_bucket")


def evaluate(
    expr: Expr, reader: SeriesReader, at: float, *, lookback_s: float | None = None, notes: list[Note] | None = None
) -> Value:
    """The value of `expr` at one time.

    Args:
        expr: As `parse` gives it.
        reader: Where series come from.
        at: Unix seconds; compared in whole milliseconds.
        lookback_s: How long a sample stands for its series; None: what each Block says.
        notes: Where warnings and infos go, if they are wanted.

    Returns:
        A Vector, a Scalar or a Text; for a range vector a Matrix, as `select_range` gives it.

    Raises:
        EvaluationError: A join with several partners and the like.
    """
    at_ms = np.array([round(at * 1000)], dtype=np.int64)
    run = _Evaluator(reader, at_ms, lookback_s, 0.0, notes, shared_parts(expr))
    match type_of(expr):
        case Type.STRING:
            inner = bare(expr)
            assert isinstance(inner, String)
            return Text(inner.value)
        case Type.RANGE:
            return run.matrix(expr)
        case Type.SCALAR:
            with np.errstate(all="ignore"):
                return Scalar(float(run.scalar(expr)[0]))
        case _:
            with np.errstate(all="ignore"):
                return _vector(run.vector(expr))


def evaluate_range(
    expr: Expr,
    reader: SeriesReader,
    start: float,
    end: float,
    step: float,
    *,
    lookback_s: float | None = DEFAULT_LOOKBACK_S,
    notes: list[Note] | None = None,
) -> Matrix:
    """The value of `expr` at `start`, `start + step`, … up to `end`.

    Only what no filter masks is in the answer, rows sorted by their labels. A
    scalar is one series without labels.

    Raises:
        EvaluationError: As `evaluate`, or the expression is a range vector or a
            string, or there are too many steps.
    """
    found = evaluate_course(expr, reader, start, end, step, lookback_s=lookback_s, notes=notes)
    shown = np.flatnonzero(found.kept.any(axis=1))
    order = sorted(shown.tolist(), key=lambda row: tuple(found.labels[row].items()))
    return Matrix(tuple(found.labels[row] for row in order), found.times, found.values[order], found.kept[order])


def evaluate_course(
    expr: Expr,
    reader: SeriesReader,
    start: float,
    end: float,
    step: float,
    *,
    lookback_s: float | None = None,
    notes: list[Note] | None = None,
) -> Course:
    """As `evaluate_range`, with what filters mask, and rows in no order: what rules would have seen.

    Raises:
        EvaluationError: As `evaluate_range`.
    """
    first, last, apart = round(start * 1000), round(end * 1000), round(step * 1000)
    if apart <= 0:
        raise EvaluationError("the step of a range query must be longer than 0")
    if last < first:
        raise EvaluationError("the end of a range query may not be before its start")
    if (last - first) // apart >= MOST_STEPS:
        raise EvaluationError(f"more than {MOST_STEPS:,} steps; a larger step would do")
    at_ms = np.arange(first, last + 1, apart, dtype=np.int64)
    kind = type_of(expr)
    if kind in {Type.STRING, Type.RANGE}:
        raise EvaluationError(
            f"a range query needs a number or an instant vector, not a {kind}", expr.span.start, expr.span.end
        )
    run = _Evaluator(reader, at_ms, lookback_s, apart / 1000.0, notes, shared_parts(expr), end_ms=last)
    with np.errstate(all="ignore"):
        frame = single(Labels(), run.scalar(expr)) if kind is Type.SCALAR else run.vector(expr)
        frame = relabel.merged(frame, named(frame))
    return Course(frame.labels, at_ms / 1000.0, frame.values, frame.present, frame.kept)


def select_range(
    expr: Expr, reader: SeriesReader, at: float, *, lookback_s: float | None = None, notes: list[Note] | None = None
) -> Matrix:
    """The samples of a bare range selector or subquery at one time.

    The times of all series together; `present` says which series has a sample when.
    """
    if type_of(expr) is not Type.RANGE:
        raise EvaluationError("this is no range vector", expr.span.start, expr.span.end)
    found = evaluate(expr, reader, at, lookback_s=lookback_s, notes=notes)
    assert isinstance(found, Matrix)
    return found


def _vector(frame: Frame) -> Vector:
    frame = relabel.merged(frame, named(frame))
    present = frame.present[:, 0]
    if frame.ordered is not None:
        order = frame.ordered[present[frame.ordered]]
    elif every(present):
        # Copied, since a plain selector's values are still the reader's own memory.
        return Vector(frame.labels, frame.values[:, 0].copy(), frame.kept[:, 0].copy())
    else:
        order = np.flatnonzero(present)
        labels = memo(
            "present", (frame.labels,), present.tobytes(), lambda: tuple(frame.labels[row] for row in order.tolist())
        )
        return Vector(labels, frame.values[order, 0], frame.kept[order, 0])
    labels = tuple(frame.labels[row] for row in order.tolist())
    return Vector(labels, frame.values[order, 0], frame.kept[order, 0])


class _Evaluator:
    """Evaluates the parts of one expression at the same steps; each subquery has one of its own."""

    def __init__(
        self,
        reader: SeriesReader,
        at_ms: Ints,
        lookback_s: float | None,
        step_s: float,
        notes: list[Note] | None,
        shared: Mapping[int, int],
        *,
        end_ms: int | None = None,
        query: tuple[int, int] | None = None,
    ) -> None:
        self._reader = reader
        self._at_ms = at_ms
        self._lookback_s = lookback_s
        self._step_s = step_s
        self._notes = notes
        self._shared = shared
        self._known: dict[int, Frame] = {}
        first = int(at_ms[0]) if len(at_ms) else 0
        last = end_ms if end_ms is not None else int(at_ms[-1]) if len(at_ms) else 0
        self._query = query or (first, last)
        self._many = len(at_ms) > 1 or step_s > 0

    @property
    def _steps(self) -> int:
        return len(self._at_ms)

    def _note(self, level: Level, message: str, expr: Expr) -> None:
        if self._notes is not None:
            note = Note(level, message, expr.span.start)
            if note not in self._notes:
                self._notes.append(note)

    # -- numbers ------------------------------------------------------------------------------------------------

    def scalar(self, expr: Expr) -> Floats:
        """float64[T]."""
        match expr:
            case Number(value=value):
                return constant(value, self._steps)
            case Paren(expr=inner):
                return self.scalar(inner)
            case Unary(op=op, expr=inner):
                found = self.scalar(inner)
                return -found if op == "-" else found
            case Binary(op=op, left=left, right=right):
                return joining.between_scalars(op, self.scalar(left), self.scalar(right))
            case Call():
                return self._scalar_call(expr)
            case _:
                raise AssertionError(f"{type(expr).__name__} is no scalar")

    def _scalar_call(self, expr: Call) -> Floats:
        first, last = self._query
        match expr.function:
            case "time":
                return self._at_ms / 1000.0
            case "pi":
                return np.full(self._steps, math.pi)
            case "start":
                return np.full(self._steps, first / 1000.0)
            case "end":
                return np.full(self._steps, last / 1000.0)
            case "range":
                return np.full(self._steps, (last - first) / 1000.0)
            case "step":
                return np.full(self._steps, self._step_s)
            case "min_of" | "max_of":
                choose = np.minimum if expr.function == "min_of" else np.maximum
                return np.asarray(choose(self.scalar(expr.args[0]), self.scalar(expr.args[1])))
            case _:
                frame = self.vector(expr.args[0])
                if not frame.labels:
                    return np.full(self._steps, np.nan)
                only = np.where(frame.kept, frame.values, 0.0).sum(axis=0)
                one = frame.kept.sum(axis=0) == 1
                # The one that is kept, found without adding to it what is masked.
                at = np.argmax(frame.kept, axis=0)
                only = frame.values[at, np.arange(self._steps)]
                return np.where(one, only, np.nan)

    # -- vectors ------------------------------------------------------------------------------------------------

    def vector(self, expr: Expr) -> Frame:
        """An instant vector at each step; what stands in the expression twice is evaluated once."""
        part = self._shared.get(id(expr))
        if part is None:
            return self._vector(expr)
        found = self._known.get(part)
        if found is None:
            found = self._known[part] = self._vector(expr)
        return found

    def _vector(self, expr: Expr) -> Frame:
        limits.check()
        match expr:
            case Paren(expr=inner):
                return self.vector(inner)
            case Selector():
                return self._select(expr)[0]
            case Unary(op=op, expr=inner):
                frame = self.vector(inner)
                return with_values(frame, -frame.values) if op == "-" else frame
            case Binary():
                return self._binary(expr)
            case Aggregate():
                return self._aggregate(expr)
            case Call():
                return self._call(expr)
            case _:
                raise AssertionError(f"{type(expr).__name__} is no instant vector")

    def _binary(self, expr: Binary) -> Frame:
        left, right = type_of(expr.left), type_of(expr.right)
        if left is Type.SCALAR:
            return joining.with_scalar(expr, self.vector(expr.right), self.scalar(expr.left), scalar_left=True)
        if right is Type.SCALAR:
            return joining.with_scalar(expr, self.vector(expr.left), self.scalar(expr.right), scalar_left=False)
        ours, theirs = self.vector(expr.left), self.vector(expr.right)
        if expr.op in SET:
            return joining.set_operation(expr, ours, theirs)
        return joining.between_vectors(expr, ours, theirs)

    def _aggregate(self, expr: Aggregate) -> Frame:
        param: Floats | str | None = None
        if expr.param is not None:
            inner = bare(expr.param)
            param = inner.value if isinstance(inner, String) else self.scalar(inner)
        frame = self.vector(expr.expr)
        if expr.op == "quantile" and isinstance(param, np.ndarray) and expr.param is not None:
            self._check_quantile(param, expr.param)
        return aggregation.aggregated(expr, frame, param)

    def _check_quantile(self, phi: Floats, expr: Expr) -> None:
        for value in phi[~((phi >= 0) & (phi <= 1))][:1].tolist():
            words = f"quantile value should be between 0 and 1, got {go_g(value)}"
            self._note(Level.WARNING, words, expr)

    # -- functions ----------------------------------------------------------------------------------------------

    def _call(self, expr: Call) -> Frame:
        name, args = expr.function, expr.args
        if name in over_time.KERNELS or name in rates.KERNELS:
            kernel = over_time.KERNELS.get(name) or rates.KERNELS[name]
            return self._windowed(expr, args[0], kernel)
        if name in elementwise.PLAIN:
            frame = self.vector(args[0])
            return with_values(frame, elementwise.PLAIN[name](frame.values))
        if name in elementwise.DATES:
            frame = self.vector(args[0]) if args else single(Labels(), self._at_ms / 1000.0)
            return with_values(frame, elementwise.DATES[name](frame.values))
        match name:
            case "vector":
                return single(Labels(), self.scalar(args[0]))
            case "timestamp":
                return self._timestamp(args[0])
            case "absent":
                return self._absent(self.vector(args[0]), args[0])
            case "absent_over_time":
                return self._absent(self._windowed(expr, args[0], over_time.present_over_time), args[0])
            case "quantile_over_time":
                phi = self.scalar(args[0])
                self._check_quantile(phi, args[0])
                return self._windowed(expr, args[1], over_time.quantile_over_time(phi))
            case "predict_linear":
                return self._windowed(expr, args[0], rates.predict_linear(self.scalar(args[1])))
            case "double_exponential_smoothing":
                return self._smoothed(expr)
            case "round":
                nearest = self.scalar(args[1]) if len(args) > 1 else np.ones(self._steps)
                return elementwise.rounded(self.vector(args[0]), nearest)
            case "clamp":
                return elementwise.clamped(self.vector(args[0]), self.scalar(args[1]), self.scalar(args[2]))
            case "clamp_min":
                return elementwise.clamped(self.vector(args[0]), self.scalar(args[1]), np.full(self._steps, np.inf))
            case "clamp_max":
                return elementwise.clamped(self.vector(args[0]), np.full(self._steps, -np.inf), self.scalar(args[1]))
            case "label_replace":
                words = [_text(arg) for arg in args[1:]]
                return relabel.replaced(self.vector(args[0]), words[0], words[1], words[2], words[3])
            case "label_join":
                words = [_text(arg) for arg in args[1:]]
                return relabel.joined_label(self.vector(args[0]), words[0], words[1], tuple(words[2:]))
            case "sort" | "sort_desc" | "sort_by_label" | "sort_by_label_desc":
                return self._sorted(expr)
            case _:
                return self._histogram(expr)

    def _sorted(self, expr: Call) -> Frame:
        frame = self.vector(expr.args[0])
        if self._many:
            self._note(
                Level.WARNING,
                "sort is ineffective for range queries since results are always ordered by labels",
                expr,
            )
            return frame
        falling = expr.function.endswith("_desc")
        if "label" in expr.function:
            names = tuple(_text(arg) for arg in expr.args[1:])
            return relabel.sorted_by_labels(frame, names, falling=falling)
        return relabel.sorted_by_value(frame, falling=falling)

    def _smoothed(self, expr: Call) -> Frame:
        level, trend = self.scalar(expr.args[1]), self.scalar(expr.args[2])
        for factor, what in ((level, "smoothing"), (trend, "trend")):
            for value in factor[~((factor > 0) & (factor < 1))][:1].tolist():
                word = "sf" if what == "smoothing" else "tf"
                raise EvaluationError(
                    f"invalid {what} factor. Expected: 0 < {word} < 1, got: {value:f}", expr.span.start, expr.span.end
                )
        return self._windowed(expr, expr.args[0], rates.smoothed(level, trend))

    def _timestamp(self, arg: Expr) -> Frame:
        inner = bare(arg)
        if isinstance(inner, Selector):
            frame, stamps = self._select(inner, stamped=True)
            assert stamps is not None
            return with_values(frame, np.where(frame.present, np.round(stamps, 3), np.nan))
        frame = self.vector(arg)
        return with_values(frame, np.broadcast_to(self._at_ms / 1000.0, frame.values.shape))

    def _absent(self, frame: Frame, arg: Expr) -> Frame:
        kept = np.asarray(~frame.kept.any(axis=0)) if frame.labels else np.ones(self._steps, dtype=bool)
        return single(relabel.absent_labels(arg), np.ones(self._steps), kept)

    def _histogram(self, expr: Call) -> Frame:
        name, args = expr.function, expr.args
        if name == "histogram_fraction":
            frame = self.vector(args[2])
            summary = histograms.fraction(self.scalar(args[0]), self.scalar(args[1]))
            return histograms.summarised(frame, summary, lambda fault: self._report(fault, args[2]))
        if name == "histogram_quantile":
            phi = self.scalar(args[0])
            self._check_quantile(phi, args[0])
            frame = self.vector(args[1])
            return histograms.summarised(frame, histograms.quantile(phi), lambda fault: self._report(fault, args[1]))
        frame, label = self.vector(args[0]), _text(args[1])
        frames = []
        for arg in args[2:]:
            phi = self.scalar(arg)
            self._check_quantile(phi, arg)
            made = histograms.summarised(frame, histograms.quantile(phi), lambda fault: self._report(fault, args[0]))
            for value in dict.fromkeys(phi.tolist()) if phi.size and not np.isnan(phi).all() else [math.nan]:
                now = np.isnan(phi) if math.isnan(value) else phi == value
                labels = histograms.quantile_label(made.labels, label, openmetrics_float(value))
                frames.append(Frame(labels, made.values, made.present & now, made.kept & now, made.drop))
        found = joined(frames, self._steps)
        return relabel.merged(found, found.labels)

    def _report(self, fault: histograms.Bad | histograms.Mended, arg: Expr) -> None:
        if isinstance(fault, histograms.Bad):
            words = f'bucket label "le" is missing or has a malformed value of "{fault.value}"'
            self._note(Level.WARNING, words + _for_metric(fault.metric), arg)
        else:
            words = (
                "input to histogram_quantile needed to be fixed for monotonicity "
                "(see https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)"
            )
            self._note(Level.INFO, words + _for_metric(fault.metric), arg)

    # -- reading ------------------------------------------------------------------------------------------------

    def _when(self, node: Selector | Subquery) -> tuple[Ints, bool]:
        """The times at which a node is looked at, offset applied; whether it is one for all steps."""
        shift = round(node.offset_s * 1000)
        if node.at is None:
            return (self._at_ms - shift if shift else self._at_ms), False
        moment = (
            self._query[0] if node.at is At.START else self._query[1] if node.at is At.END else round(node.at * 1000)
        )
        return np.array([moment - shift], dtype=np.int64), True

    def _blocks(self, selector: Selector, first_ms: int, last_ms: int) -> list[Block]:
        # A millisecond more than is needed, since the reader compares floats; the exact cut is made in milliseconds.
        return list(self._reader.select(selector.matchers, first_ms / 1000.0 - 0.001, last_ms / 1000.0 + 0.001))

    def _select(self, selector: Selector, *, stamped: bool = False) -> tuple[Frame, Floats | None]:
        when, fixed = self._when(selector)
        if not self._steps:
            return empty(0), np.zeros((0, 0))
        back = self._lookback_s
        if back is None:
            back = getattr(self._reader, "widest_lookback_s", _WIDEST_LOOKBACK_S)
        blocks = self._blocks(selector, int(when[0]) - round(back * 1000), int(when[-1]))
        frame, stamps = newest(blocks, when, self._lookback_s, stamped=stamped)
        if fixed and self._steps > 1:
            frame = _repeated(frame, self._steps)
            stamps = None if stamps is None else np.repeat(stamps, self._steps, axis=1)
        return frame, stamps

    def _windowed(self, call: Call, arg: Expr, kernel: Kernel) -> Frame:
        """`kernel` over the windows of a range selector or a subquery."""
        node = bare(arg)
        assert isinstance(node, Range | Subquery)
        target = node.selector if isinstance(node, Range) else node
        ends, fixed = self._when(target)
        if fixed:
            ends = np.repeat(ends, self._steps)
        range_ms = round(node.range_s * 1000)
        if not self._steps:
            return empty(0)
        keeps_name = call.function in _KEEPS_NAME
        ordered = call.function not in over_time.WITHOUT_ORDER
        frames = [
            through_windows(samples, kernel, self._at_ms, ends, range_ms, keeps_name=keeps_name, ordered=ordered)
            for samples in self._samples(node, int(ends[0]) - range_ms, int(ends[-1]))
        ]
        frame = joined(frames, self._steps)
        if call.function in _COUNTERS and self._notes is not None and isinstance(node, Range):
            self._check_counters(frame, node)
        return frame

    def _check_counters(self, frame: Frame, node: Range) -> None:
        seen = {frame.labels[row].get(METRIC_NAME, "") for row in np.flatnonzero(frame.kept.any(axis=1)).tolist()}
        for name in sorted(seen):
            if name and not name.endswith(_COUNTER_ENDINGS):
                words = f"metric might not be a counter, name does not end in {'/'.join(_COUNTER_ENDINGS)}"
                self._note(Level.INFO, f'{words}: "{name}"', node)

    def _samples(self, node: Range | Subquery, first_ms: int, last_ms: int) -> list[Samples]:
        if isinstance(node, Range):
            found = []
            for block in self._blocks(node.selector, first_ms, last_ms):
                none = all_false(len(block.labels))
                found.append(Samples(block.labels, block.times, block.values, block.present, None, none))
            return found
        step_ms = round((DEFAULT_STEP_S if node.step_s is None else node.step_s) * 1000)
        begin = (first_ms // step_ms + 1) * step_ms
        if (last_ms - begin) // step_ms >= MOST_STEPS:
            raise EvaluationError(f"this subquery has more than {MOST_STEPS:,} steps", node.span.start, node.span.end)
        inner_ms = np.arange(begin, last_ms + 1, step_ms, dtype=np.int64)
        if not len(inner_ms):
            return []
        inner = _Evaluator(
            self._reader, inner_ms, self._lookback_s, step_ms / 1000.0, self._notes, self._shared, query=self._query
        )
        frame = inner.vector(node.expr)
        if not frame.labels:
            return []
        masked = frame.present & ~frame.kept
        return [
            Samples(
                frame.labels, inner_ms / 1000.0, frame.values, frame.kept, masked if masked.any() else None, frame.drop
            )
        ]

    def matrix(self, expr: Expr) -> Matrix:
        """The samples of a range vector at the one step there is."""
        node = bare(expr)
        assert isinstance(node, Range | Subquery)
        ends, _ = self._when(node.selector if isinstance(node, Range) else node)
        first, last = int(ends[0]) - round(node.range_s * 1000), int(ends[0])
        with np.errstate(all="ignore"):
            found = self._samples(node, first, last)
        parts = []
        for samples in found:
            times = milliseconds(samples.times)
            inside = (times > first) & (times <= last)
            parts.append((samples, inside, times[inside]))
        moments = np.unique(np.concatenate([times for _, _, times in parts] or [np.zeros(0, np.int64)]))
        frames = []
        for samples, inside, times in parts:
            columns = np.searchsorted(moments, times)
            shape = (len(samples.labels), len(moments))
            values, there = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
            values[:, columns], there[:, columns] = samples.values[:, inside], samples.present[:, inside]
            frames.append(Frame(samples.labels, values, there, there, samples.drop))
        frame = joined(frames, len(moments))
        frame = relabel.merged(frame, named(frame))
        order = [row for row in relabel.label_order(frame.labels).tolist() if frame.present[row].any()]
        return Matrix(
            tuple(frame.labels[row] for row in order), moments / 1000.0, frame.values[order], frame.present[order]
        )


def _repeated(frame: Frame, steps: int) -> Frame:
    present = np.repeat(frame.present, steps, axis=1)
    return Frame(frame.labels, np.repeat(frame.values, steps, axis=1), present, present, frame.drop)


def _text(expr: Expr) -> str:
    inner = bare(expr)
    assert isinstance(inner, String)
    return inner.value


def _for_metric(name: str) -> str:
    return f' for metric name "{name}"' if name else ""
