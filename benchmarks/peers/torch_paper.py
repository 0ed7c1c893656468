"""Trains the ResNet of He et al. 2015 (arXiv:1512.03385, section 4.2) in PyTorch, from TFRecords.

    PYTHON_WITH_TORCH -m benchmarks.peers.torch_paper --data-dir cifar-10-data --output-dir out
    PYTHON_WITH_TORCH -m benchmarks.peers.torch_paper --steps 16000 --drops 8000 12000 ...

Without flags, the paper's schedule: 64,000 steps of 128 images, 0.1 divided by 10 at steps 32,000
and 48,000. Shortcuts are option A: each second position, zero channels after the others. Images are
normalized by each channel's mean and standard deviation, as `--recipe paper` does; the paper
subtracts each pixel's mean.

With --bf16, a training step is in bf16 by autocast; evaluation stays in fp32. torch.compile made
these steps slower on two cores of an AMD EPYC (Zen 4).

A run that was interrupted continues at its checkpoint, one every 1,000 steps, with the same result:
the images of a step depend on the seed and the step alone. Prints the rows of the curve as JSON
lines and keeps them in metrics.jsonl, in the form of cifar10_main.py's. The last row has the
accuracy of the last weights on the test images. Needs no package but torch and numpy.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.peers.torch_step import resnet

BATCH, LEARNING_RATE, MOMENTUM, DECAY, PADDING = 128, 0.1, 0.9, 1e-4, 4
CURVE_STEPS, CHECKPOINT_STEPS = 100, 1000
# Records of data_prep are all of one length: 12 bytes, the beginning of an example, the image, the
# label's feature with the label as its last byte, and a CRC of 4 bytes.
RECORD_BYTES, IMAGE, LABEL = 3126, slice(34, 34 + 3072), -5


def main() -> None:
    """Trains, or continues, and evaluates the last weights."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    for name in ("data-dir", "output-dir"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name, default in (("depth", 20), ("steps", 64_000), ("seed", 1), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"({default})")
    parser.add_argument("--drops", type=int, nargs="*", default=[32_000, 48_000])
    parser.add_argument("--bf16", action="store_true", help="by autocast")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    images, labels = _read(options.data_dir, "train")
    held_out = {split: _read(options.data_dir, split) for split in ("validation", "eval")}
    model = nn.Sequential(_Normalize(images), resnet(options.depth, _second_positions))
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight)
    nn.init.zeros_(model[1][-1].bias)
    model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM, weight_decay=DECAY)
    done, rows, losses = 0, [], list[float]()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    checkpoint = options.output_dir / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done, rows = saved["step"], saved["rows"]

    def record(split: str, **metrics: float) -> None:
        rows.append({"split": split, "step": step, **metrics})
        print(json.dumps(rows[-1]), flush=True)

    random = torch.Generator().manual_seed(options.seed)
    epochs = -(-options.steps * BATCH // len(labels))
    order = torch.cat([torch.randperm(len(labels), generator=random) for _ in range(epochs)])
    for step in range(done + 1, options.steps + 1):
        rate = LEARNING_RATE * 0.1 ** sum(step > drop for drop in options.drops)
        optimizer.param_groups[0]["lr"] = rate
        chosen = order[(step - 1) * BATCH : step * BATCH]
        random.manual_seed(options.seed * 10**6 + step)
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
            logits = model(_distorted(images[chosen], random))
        loss = functional.cross_entropy(logits.float(), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % CURVE_STEPS == 0:
            record("train", loss=sum(losses) / len(losses), learning_rate=rate)
            losses.clear()
        if step % CHECKPOINT_STEPS == 0 or step == options.steps:
            record("validation", accuracy=_accuracy(model, *held_out["validation"]))
            if step == options.steps:
                record("eval", accuracy=_accuracy(model, *held_out["eval"]))
            lines = [json.dumps(row) + "\n" for row in rows]
            (options.output_dir / "metrics.jsonl").write_text("".join(lines))
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "step": step, "rows": rows}, f"{checkpoint}.new")
            os.replace(f"{checkpoint}.new", checkpoint)


def _read(data_dir: Path, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns images, uint8 [N, 3, 32, 32], and labels, int64 [N]."""
    path = data_dir / f"{split}.tfrecords"
    content = np.fromfile(path, np.uint8)
    if content.size % RECORD_BYTES or content[:8].view("<i8").sum() + 16 != RECORD_BYTES:
        raise SystemExit(f"{path} must have records as data_prep writes them; convert it again")
    rows = torch.from_numpy(content.reshape(-1, RECORD_BYTES))
    return rows[:, IMAGE].reshape(-1, 3, 32, 32), rows[:, LABEL].long()


def _distorted(images: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Crops images, uint8 [N, 3, 32, 32], at random out of black margins; flips half of them."""
    count, side = len(images), torch.arange(32)
    down, right = torch.randint(0, 2 * PADDING + 1, (2, count, 1), generator=random)
    flipped = torch.randint(0, 2, (count, 1), generator=random) == 1
    rows, columns = down + side, right + torch.where(flipped, 31 - side, side)
    padded = functional.pad(images, [PADDING] * 4).permute(0, 2, 3, 1)  # [N, 40, 40, 3]
    image = torch.arange(count).view(-1, 1, 1)
    return padded[image, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)


def _accuracy(model: Any, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        predicted = torch.cat([model(batch).argmax(1) for batch in images.split(500)])
    model.train()
    return int((predicted == labels).sum()) / len(labels)


class _Normalize(nn.Module):
    def __init__(self, images: torch.Tensor) -> None:
        super().__init__()
        channels = images.transpose(0, 1).flatten(1).float()
        self.mean, self.std = channels.mean(1).view(3, 1, 1), channels.std(1).view(3, 1, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = (images.float() - self.mean) / self.std
        return x.contiguous(memory_format=torch.channels_last)


def _second_positions(x: Any, more: int) -> Any:
    return functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, more))


if __name__ == "__main__":
    main()
