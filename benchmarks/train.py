"""Training speed: xformc's step against a plain eager loop over torch.nn.Transformer.

    python -m benchmarks.train --data DIR [--languages en-de] [--seconds 60] [--beside transformers fairseq]

They take turns on the same batches, a few each, in one process. Both have d_model 128, 4+4 layers, d_ff 256,
4 heads, dropout 0.3, 10,000 shared BPE tokens, tied embeddings and output, label smoothing 0.1, Adam, and
batches of 4,096 tokens. The plain loop computes in float32, torch's default; xformc in the spec's default
precision, or the one given. With --beside, the steps of other libraries take turns, too (benchmarks/train_peers.py):
transformers' in float32 and bfloat16.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from benchmarks.distill import ADAM
from benchmarks.train_peers import fairseq, hugging_face
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.pipeline import compile_training
from xformc.compiler.spec import load_spec
from xformc.trainer.cast_layers import cast_layers
from xformc.trainer.compiled_layers import compile_layers
from xformc.trainer.data.batches import Batch, Examples, make_batch, plan_batches
from xformc.trainer.data.data_schema import data_schema
from xformc.trainer.data.dataset import encode_corpus, find_corpus, read_corpus
from xformc.trainer.data.text_examples import train_on
from xformc.trainer.data.text_files import Texts
from xformc.trainer.data.vocabulary import PAD
from xformc.trainer.hardware import choose_device, choose_precision
from xformc.trainer.loop import take_step
from xformc.trainer.optimizers import make_optimizer
from xformc.trainer.run import Identity
from xformc.trainer.train import make_recipe

SPEC = Path(__file__).parent.parent / "specs" / "multi30k.yaml"
TURN = 4
Step = Callable[[Batch], None]


def main() -> None:
    arguments = parse_arguments()
    spec = load_spec(arguments.spec, ADAM)
    schema = data_schema(spec)
    corpus = read_corpus(find_corpus(arguments.data, schema, arguments.languages), schema)
    assert isinstance(corpus.train, Texts), "the plain loop is for sentence pairs"
    tokenizer = train_on(corpus.train, schema, spec.train.tokenizer)
    examples = encode_corpus(corpus, schema, tokenizer).train
    assert isinstance(examples, Examples), "not prepared data"
    batches = [make_batch(examples, rows) for rows in plan_batches(examples, spec.train.batch_tokens, 1, 0)]
    device = choose_device()
    precision = arguments.precision or choose_precision(spec.train.precision, device)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {device}, ours in {precision}")
    steps = {"plain loop, float32": plain_loop(schema.classes), f"xformc, {precision}": our_step(spec, precision)}
    if "transformers" in arguments.beside:
        steps |= {f"transformers, {name}": hugging_face(schema.classes, name) for name in ("float32", "bfloat16")}
    if "fairseq" in arguments.beside:
        steps["fairseq, float32"] = fairseq(schema.classes)
    speeds = measure(steps, batches, arguments.seconds)
    ours = speeds[f"xformc, {precision}"]
    print(f"{'':24} {'target tokens/s':>15}   xformc is faster by (lowest to highest of {len(ours)} turns)")
    for name, values in speeds.items():
        ratios = sorted(own / other for own, other in zip(ours, values, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"{name:24} {statistics.median(values):15,.0f}   {spread}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with train.* and valid.*")
    parser.add_argument("--languages", help="source and target, for example en-de")
    parser.add_argument("--spec", type=Path, default=SPEC)
    parser.add_argument("--precision", choices=["float32", "bfloat16"])
    parser.add_argument("--beside", nargs="*", default=[], choices=["transformers", "fairseq"])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure")
    return parser.parse_args()


def measure(steps: dict[str, Step], batches: list[Batch], seconds: float) -> dict[str, list[float]]:
    speeds: dict[str, list[float]] = {name: [] for name in steps}
    turns = [batches[first : first + TURN] for first in range(0, len(batches) - TURN + 1, TURN)]
    for step in steps.values():
        run_turn(step, turns[0])
    end, index = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        turn = turns[index % len(turns)]
        for name, step in steps.items():
            speeds[name].append(run_turn(step, turn))
        index += 1
    return speeds


def run_turn(step: Step, turn: list[Batch]) -> float:
    """Return target tokens per second."""
    start = time.perf_counter()
    for batch in turn:
        step(batch)
    return sum(batch.count for batch in turn) / (time.perf_counter() - start)


def our_step(spec, precision: str, device: torch.device | None = None, *, compile: bool = False) -> Step:
    """Return the step of `xformc train`, with or without `--compile`; by default on the CPU."""
    torch.set_flush_denormal(True)
    model = TorchModule(compile_training(spec).graph, seed=1).to(device).train()
    if compile:
        compile_layers(model)
    elif precision == "bfloat16":
        cast_layers(model)
    optimizer = make_optimizer(spec.train.optimizer, model)
    recipe = make_recipe(spec, Identity("", "", "", 1, precision, compile=compile), None)
    count = 0

    def step(batch: Batch) -> None:
        nonlocal count
        count += 1
        take_step(model, optimizer, (batch,), recipe, count)

    return step


def plain_loop(size: int) -> Step:
    model = PlainTransformer(size, Sizes(128, 256, 4, 4, 0.3)).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        logits = model(batch.inputs["source"], batch.inputs["target"])
        loss = criterion(logits.flatten(0, 1), batch.labels.flatten())
        loss.backward()
        optimizer.step()

    return step


@dataclass(frozen=True)
class Sizes:
    """The sizes of a Transformer, named as in a spec."""

    d_model: int
    d_ff: int
    heads: int
    layers: int
    dropout: float


class PlainTransformer(nn.Module):
    """The model of many tutorials: nn.Transformer between a tied embedding and projection."""

    def __init__(self, size: int, sizes: Sizes) -> None:
        super().__init__()
        d_model, layers = sizes.d_model, sizes.layers
        self.embedding = nn.Embedding(size, d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.transformer = nn.Transformer(
            d_model, sizes.heads, layers, layers, sizes.d_ff, dropout=sizes.dropout, batch_first=True
        )
        self.dropout = nn.Dropout(sizes.dropout)
        self.positions = nn.Buffer(sinusoids(512, d_model), persistent=False)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=torch.ones(target.shape[1], target.shape[1], dtype=torch.bool, device=target.device).triu(1),
            src_key_padding_mask=source == PAD,
            memory_key_padding_mask=source == PAD,
            tgt_is_causal=True,
        )
        return x @ self.embedding.weight.T

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids) * self.embedding.embedding_dim**0.5
        return self.dropout(x + self.positions[: ids.shape[1]])


def sinusoids(length: int, d_model: int) -> torch.Tensor:
    position = torch.arange(length).unsqueeze(1)
    angle = position / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


if __name__ == "__main__":
    main()
