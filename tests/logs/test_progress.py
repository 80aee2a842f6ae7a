"""Where a job stands, from its log alone."""

from __future__ import annotations

import pytest

from sentinel.logs.progress import Seen, look

STEPS = [
    (" 12%|###   | 1800/14754 [08:30<1:01:10,  3.53it/s]", 1800, None),
    ("{'loss': 0.329, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.31}", None, 0.329),
    ("Epoch 2:  42%|####      | 429/1000 [01:02<01:26,  6.90it/s, v_num=12, train_loss=0.412]", 2429, 0.412),
    (" iteration     5426/  250000 | consumed samples:  512 | lm loss: 2.100000E+00 | loss scale: 1.0 |", 5426, 2.1),
    ("[rank0]:2026-01-02 - root - INFO - \x1b[31mstep: 12  \x1b[32mloss:  7.4121  memory: 41.20GiB", 12, 7.4121),
    ("iter 1200: loss 2.3100, time 412.11ms, mfu 31.22%", 1200, 2.31),
    ('{"step": 500, "loss": 1.5, "lr": 1e-4}', None, 1.5),
    ("step 429/1000 | loss 2.31 | lr 3.0e-05", 429, 2.31),
    ("Loading checkpoint shards:  50%|#####     | 2/4 [00:03<00:03]", None, None),
    ("Evaluating: 10%|#  | 12/120 [00:03<00:03]", None, None),
    ("loss scale: 65536", None, None),
    ("step 3 of the guide: install it", None, None),
]


@pytest.mark.parametrize(("line", "step", "loss"), STEPS)
def test_the_usual_forms_are_read(line: str, step: int | None, loss: float | None) -> None:
    assert look(line.encode(), Seen()) == Seen(step, loss)


def test_the_last_state_of_a_bar_counts() -> None:
    bar = b"\r  1%|          | 10/1000 [00:01<01:00]\r  2%|          | 20/1000 [00:02<01:00]"

    assert look(bar, Seen()).step == 20


def test_a_loss_that_stays_nan_is_counted_and_a_number_ends_it() -> None:
    seen = look(b"step 1 loss nan\nstep 2 loss nan\nstep 3 loss nan", Seen())
    assert seen.nan_steps == 3

    assert look(b"step 4 loss 2.0", seen).nan_steps == 0


def test_however_much_came_only_the_newest_lines_cost() -> None:
    data = b"\n".join(b"step %d loss 1.0" % step for step in range(100_000))

    assert look(data, Seen()).step == 99_999
