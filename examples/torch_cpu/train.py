"""Trains a small character model on keeper.txt, on the CPU: a real job to try `supervise` on. Needs only torch.

Sequences start short and get long after `--long-after` steps, so memory grows in the middle of the run. With
`--headroom-mib` the process may grow by that much and no more; a batch that needs more fails in PyTorch's own
allocator. A step always sees the same `batch_size * grad_accum` sequences, however they are split.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

TEXT = Path(__file__).with_name("keeper.txt")


class Block(nn.Module):
    """Attention over what came before, then two layers. Attention is spelled out: its memory is what grows."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norms[1](x))


class Model(nn.Module):
    """Characters in, logits of the next character out."""

    def __init__(self, letters: int, width: int, layers: int, longest: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.places = nn.Embedding(longest, width)
        self.blocks = nn.Sequential(*(Block(width, heads=4) for _ in range(layers)))
        self.logits = nn.Linear(width, letters)

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.blocks(self.letters(x) + self.places(torch.arange(x.shape[1]))))


def sequences(data: Tensor, step: int, count: int, length: int, seed: int) -> Tensor:
    """The sequences of a step: they follow from the seed and the step alone."""
    dice = torch.Generator().manual_seed(seed * 1_000_003 + step)
    starts = torch.randint(len(data) - length - 1, (count,), generator=dice)
    return torch.stack([data[start : start + length + 1] for start in starts.tolist()])


def save(path: Path, state: dict[str, object]) -> None:
    """In place only when whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.tmp")
    torch.save(state, fresh)
    fresh.replace(path)


def limit_growth(headroom_mib: int) -> None:
    """From here on the address space may grow by so much."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + headroom_mib * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--grad-accum", type=int, default=1)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--short", type=int, default=32, help="characters of a sequence at first")
    parser.add_argument("--long", type=int, default=256, help="characters of a sequence later")
    parser.add_argument("--long-after", type=int, default=25, metavar="STEP")
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--headroom-mib", type=int, help="how far memory may grow; no limit by default")
    return parser.parse_args()


def main() -> None:
    args = flags()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # further threads reserve address space of their own
    text = TEXT.read_text(encoding="utf-8")
    letters = sorted(set(text))
    data = torch.tensor([letters.index(letter) for letter in text])
    model = Model(len(letters), args.width, args.layers, args.long)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    done = 0
    if args.resume:
        state = torch.load(args.resume, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
        print(f"resuming from {args.resume} at step {done}", flush=True)
    if args.headroom_mib:
        limit_growth(args.headroom_mib)
    for step in range(done + 1, args.steps + 1):
        began = time.monotonic()
        length = args.short if step <= args.long_after else args.long
        batch = sequences(data, step, args.batch_size * args.grad_accum, length, args.seed)
        loss = 0.0
        optimizer.zero_grad()
        for part in batch.split(args.batch_size):
            wrong = F.cross_entropy(model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten()) / args.grad_accum
            wrong.backward()
            loss += wrong.item()
        optimizer.step()
        rate = batch.numel() / (time.monotonic() - began)
        print(f"step {step} loss {loss:.4f} rate {rate:.0f}", flush=True)
        if step % args.save_every == 0 or step == args.steps:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            save(args.checkpoints / f"step_{step}.pt", state)


if __name__ == "__main__":
    main()
