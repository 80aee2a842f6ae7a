"""Real checkpoints, written by the libraries themselves. `pytest -m torch`, where they are installed."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sentinel.checkpoints import contents
from sentinel.checkpoints.formats import DEEP, Verdict, inspect
from sentinel.checkpoints.watch import Watcher, survey
from sentinel.model.checkpoints import CheckpointState

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch: Any = pytest.importorskip(
        "torch", reason="PyTorch is not installed: pip install torch, then pytest -m torch"
    )

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The libraries narrate a lot."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def training() -> tuple[Any, Any, dict[str, Any]]:
    """A small model after one step, and all that it needs to go on."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model(torch.randn(4, 64)).sum().backward()
    optimizer.step()
    scheduler.step()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "lr_scheduler": scheduler.state_dict(),
        "global_step": 7,
        "sampler": {"position": 28},
        "rng_state": torch.get_rng_state(),
        "scaler": torch.amp.GradScaler("cpu").state_dict() or {"scale": 1.0},
    }
    return model, optimizer, state


@pytest.mark.parametrize(
    ("options", "form"), [({}, "torch-zip"), ({"_use_new_zipfile_serialization": False}, "torch-legacy")]
)
def test_what_torch_saves(tmp_path: Path, options: dict[str, bool], form: str) -> None:
    torch.save(training()[2], tmp_path / "step-7.pt", **options)

    for found in (inspect(tmp_path / "step-7.pt"), inspect(tmp_path / "step-7.pt", DEEP)):
        assert (found.format, found.verdict, found.step) == (form, Verdict.WHOLE, 7)
        assert contents.missing(found.contents) == ()


def test_weights_and_whole_modules_are_models(tmp_path: Path) -> None:
    model, optimizer, _ = training()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    torch.save(model, tmp_path / "module.pt")
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")

    assert inspect(tmp_path / "weights.pt").contents == {"model"}
    assert inspect(tmp_path / "module.pt").contents == {"model"}
    assert inspect(tmp_path / "optimizer.pt").contents == {"optimizer"}
    assert contents.verdict({"model"}).startswith("weights only")


def test_saved_without_checksums_it_is_whole_and_says_so(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(training()[2], tmp_path / "step-7.pt")
    finally:
        torch.serialization.set_crc32_options(True)

    found = inspect(tmp_path / "step-7.pt", DEEP)

    assert found.verdict is Verdict.WHOLE
    assert "without checksums" in found.notes[0]


@pytest.mark.parametrize("legacy", [False, True])
def test_truncated_at_every_4_kib_it_is_never_called_whole(tmp_path: Path, legacy: bool) -> None:
    path = tmp_path / "step-7.pt"
    torch.save(training()[2], path, _use_new_zipfile_serialization=not legacy)
    whole = path.read_bytes()
    assert len(whole) > 60_000
    for size in [*range(0, len(whole), 4096), len(whole) - 1]:
        path.write_bytes(whole[:size])
        for found in (inspect(path), inspect(path, DEEP)):
            assert found.verdict is Verdict.TORN, size


def test_a_flipped_bit_is_found_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "step-7.pt"
    state = training()[2]
    torch.save(state, path)
    whole = path.read_bytes()
    dice = random.Random(5)
    found = 0
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        if inspect(path, DEEP).verdict is Verdict.TORN:
            found += 1
            continue
        loaded = torch.load(path, weights_only=True)  # in padding or in a date: what is loaded is the same
        assert loaded.keys() == state.keys()
        assert all(torch.equal(loaded["model"][key], state["model"][key]) for key in state["model"])
        assert torch.equal(loaded["rng_state"], state["rng_state"])
    assert found > 100


def test_a_distributed_checkpoint(tmp_path: Path) -> None:
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    get_optimizer_state_dict = pytest.importorskip("torch.distributed.checkpoint.state_dict").get_optimizer_state_dict
    model, optimizer, _ = training()
    place = tmp_path / "step-7"
    state = {"model": model.state_dict(), "optimizer": get_optimizer_state_dict(model, optimizer)}
    dcp.save(state, checkpoint_id=place)
    found = inspect(place)
    assert (found.format, found.verdict) == ("dcp", Verdict.WHOLE)
    assert found.contents == {"model", "optimizer"}

    shard = next(place.glob("*.distcp"))
    data = shard.read_bytes()
    for size in range(0, len(data), 4096):
        shard.write_bytes(data[:size])
        assert inspect(place).verdict is Verdict.TORN
    shard.unlink()
    assert "which is not there" in inspect(place).reason


def test_safetensors(tmp_path: Path) -> None:
    save_file = pytest.importorskip("safetensors.torch", reason="safetensors is not installed").save_file
    save_file(training()[0].state_dict(), tmp_path / "model.safetensors", metadata={"step": "12"})
    found = inspect(tmp_path / "model.safetensors", DEEP)
    assert (found.verdict, found.step) == (Verdict.WHOLE, 12)
    assert found.contents == {"model"}

    data = (tmp_path / "model.safetensors").read_bytes()
    for size in [*range(0, len(data), 4096), len(data) - 1]:
        (tmp_path / "model.safetensors").write_bytes(data[:size])
        assert inspect(tmp_path / "model.safetensors").verdict is Verdict.TORN


def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning", reason="Lightning is not installed")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch: Any, _index: int) -> Any:
            return self.layer(batch[0]).sum()

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters())
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(32, 8)), batch_size=4)
    trainer = lightning.Trainer(
        max_steps=5, accelerator="cpu", default_root_dir=tmp_path, enable_progress_bar=False, enable_model_summary=False
    )
    trainer.fit(Module(), data)
    trainer.save_checkpoint(tmp_path / "weights.ckpt", weights_only=True)

    newest = survey([str(tmp_path / "lightning_logs")], time.time() + 10).newest
    assert newest is not None
    assert (newest.step, newest.missing) == (5, ("dataloader", "rng", "scaler"))
    assert "optimizer" not in inspect(tmp_path / "weights.ckpt").contents


def test_the_trainer_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=64, n_positions=16)

    class Data(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 16

        def __getitem__(self, index: int) -> dict[str, Any]:
            return dict.fromkeys(("input_ids", "labels"), torch.full((8,), index % 60))

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=4, save_steps=2, per_device_train_batch_size=2, report_to=[],
        use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    transformers.Trainer(model=model, args=arguments, train_dataset=Data()).train()
    model.save_pretrained(tmp_path / "sharded", max_shard_size="5KB")

    found = survey([str(tmp_path)], time.time() + 10)
    assert found.newest is not None
    at_four = inspect(tmp_path / "checkpoint-4")
    assert (at_four.format, at_four.verdict, at_four.step) == ("hf-trainer", Verdict.WHOLE, 4)
    assert contents.missing(at_four.contents) == ("scaler",)
    assert inspect(tmp_path / "sharded", DEEP).verdict is Verdict.WHOLE

    for name in ("optimizer.pt", "model.safetensors"):
        data = (tmp_path / "checkpoint-4" / name).read_bytes()
        (tmp_path / "checkpoint-4" / name).write_bytes(data[:4096])
        assert inspect(tmp_path / "checkpoint-4").verdict is Verdict.TORN
        (tmp_path / "checkpoint-4" / name).write_bytes(data)


WRITER = """
import sys, torch
place, start = sys.argv[1], int(sys.argv[2])
state = {"model": {"w": torch.zeros(300_000)}, "global_step": 0}
print("ready", flush=True)
for step in range(start, start + 10_000):
    state["global_step"] = step
    torch.save(state, f"{place}/step-{step:07}.pt")
"""


def test_a_writer_killed_at_any_moment_never_leaves_a_wrong_last_good(tmp_path: Path) -> None:
    writers, dice, start = 8, random.Random(3), 0
    for _ in range(writers):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(start)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(dice.uniform(0.05, 0.3))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        newest = survey([str(tmp_path)], time.time() + 10).newest
        if newest is None:
            continue
        assert torch.load(newest.path, weights_only=True)["global_step"] == newest.step
        start = (newest.step or 0) + 2
        for old in sorted(tmp_path.glob("*.pt"))[:-3]:
            os.unlink(old)


def test_one_that_is_written_slowly_is_in_progress_and_then_whole(tmp_path: Path) -> None:
    torch.save(training()[2], tmp_path / "whole.bin")
    data = (tmp_path / "whole.bin").read_bytes()
    (tmp_path / "whole.bin").unlink()
    watcher, now = Watcher([str(tmp_path)]), time.time()
    watcher.poll(now)
    with (tmp_path / "step-7.pt").open("wb") as file:
        for at in range(0, len(data), 8192):
            file.write(data[at : at + 8192])
            file.flush()
            news = watcher.poll(now := now + 1)
            assert (not news) is (at + 8192 < len(data))
    assert [found.state for found in news] == [CheckpointState.COMPLETE]
