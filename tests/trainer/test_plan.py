"""Plans of training: memory as it is measured, and the paper's training costs."""

import json
from pathlib import Path

import pytest
import torch
from command_line import CommandLine, mistake

from benchmarks.plan_memory import measured_peak
from xformc.compiler.backends.torch import chunked_loss
from xformc.compiler.explain.cost.spec_cost import report
from xformc.compiler.pipeline import compile_spec, compile_training
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.specs import SHIPPED
from xformc.trainer.data.batches import Batch
from xformc.trainer.operations import operations_of
from xformc.trainer.plan.cards import CARDS, card_called
from xformc.trainer.plan.memory import step_memory
from xformc.trainer.plan.plan import Machine, Work, plan

SIZES = ["sizes.layers=2", "sizes.d_model=64", "sizes.d_ff=128", "sizes.heads=2", "sizes.vocabulary=500"]
TINY = [*SIZES, "train.optimizer={adam: {}}", "train.batch_tokens=4096"]
MULTI30K = SHIPPED / "multi30k.yaml"


@pytest.mark.parametrize(("patterns", "bfloat16"), [((), False), (("encoder/*", "decoder/*"), False), ((), True)])
def test_planned_memory_is_what_a_step_allocates(patterns: tuple[str, ...], bfloat16: bool) -> None:
    graph = compile_training(load_spec(MULTI30K, TINY)).graph
    found = step_memory(graph, 16, 32, batches=1, bfloat16=bfloat16, patterns=patterns, gpu=False)
    measured = measured_peak(graph, 16, 32, patterns, bfloat16=bfloat16)
    assert found.peak == pytest.approx(measured, rel=0.1)
    assert found.kept < found.peak


def test_gpus_keep_less_and_recomputing_keeps_less_still() -> None:
    graph = compile_training(load_spec(MULTI30K, TINY)).graph
    on_cpu, on_gpu = (step_memory(graph, 16, 32, batches=1, bfloat16=False, gpu=gpu).kept for gpu in (False, True))
    again = step_memory(graph, 16, 32, batches=1, bfloat16=False, patterns=("encoder/*", "decoder/*")).kept
    assert 2 * again < on_gpu < on_cpu


@pytest.mark.parametrize(("name", "paper", "share"), [("base", 3.3e18, 0.29), ("big", 2.3e19, 0.42)])
def test_operations_are_a_plausible_share_of_the_papers(name: str, paper: float, share: float) -> None:
    """Table 2 of Vaswani et al. (2017) multiplies the time by 9.5 TFLOPS of a P100, whatever part of them was used."""
    spec = load_spec(SHIPPED / f"transformer_{name}.yaml")
    found = report(spec, 64, 1)
    flops = 3 * found.total.forward.products * found.training.units * spec.train.steps
    assert flops / paper == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("name", ["multi30k", "vit"])
def test_operations_of_a_batch_are_those_of_the_report(name: str) -> None:
    spec = load_spec(SHIPPED / f"{name}.yaml")
    found, graph = report(spec, None if name == "vit" else 48, 1), compile_spec(spec)
    rows = found.training.examples
    assert rows == (64 if name == "vit" else spec.train.batch_tokens // 48), "the pixels of an image are its positions"
    shapes = [
        [{"batch": rows}.get(axis.name, axis.size or found.length or 1) for axis in value.type.axes]
        for value in graph.inputs
    ]
    batch = Batch({str(index): torch.empty(shape, device="meta") for index, shape in enumerate(shapes)}, {}, ())
    wanted = 3 * found.total.forward.products * found.training.units / spec.train.accumulate
    assert operations_of(graph)(batch) == pytest.approx(wanted)
    assert operations_of(graph, copies=2)(batch) == pytest.approx(2 * wanted)


def test_cards_are_known_by_the_names_of_drivers() -> None:
    for device, card in (
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA L40S", "l40s"),
    ):
        found = card_called(device)
        assert found is not None and (found.bfloat16, found.float32) == (CARDS[card].bfloat16, CARDS[card].float32)
    assert card_called("NVIDIA H100 PCIe") is card_called("Some A10000") is None


@pytest.mark.parametrize("agreement", [0.0, 5.0])
def test_chunks_of_a_gpu_have_more_rows_and_the_same_loss(agreement: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In chunks of 7 or 8 rows, or in one; with copies, a row and its copy are in one chunk."""
    torch.manual_seed(1)
    x, weight, bias = given = [torch.randn(shape, requires_grad=True) for shape in ((50, 3), (5, 3), (5,))]
    labels, copies = torch.randint(0, 5, (25,)).repeat(2), 2 if agreement else 1
    monkeypatch.setattr(chunked_loss, "CHUNK_ROWS", 7)
    found = list[tuple[torch.Tensor, ...]]()
    for device in ("cpu", "cuda"):
        loss, nll, _ = chunked_loss.linear_cross_entropy(
            x, weight, bias, labels, 0.1, 0, agreement=agreement, chunks_of=device
        )
        found.append((loss, nll, *torch.autograd.grad(loss, given)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
    assert chunked_loss.chunk_rows("cpu", 37_000, 2, copies=copies) == 6 + copies
    large = chunked_loss.chunk_rows("cuda", 37_000, 2, copies=copies)
    assert large == (454 if agreement else 3627) and large % copies == 0
    assert chunked_loss.chunk_rows("cuda", 10**9, 4, copies=copies) == 6 + copies, "no fewer than on a CPU"


def test_plan_of_several_gpus() -> None:
    spec = load_spec(MULTI30K, [*TINY, "train.accumulate=4"])
    work = Work(products=1e6, units=4 * 4096, examples=64, length=64)
    alone, four, sharded = (plan(spec, Machine(gpus, "h100", CARDS["h100"], 0.5, shard, 2.0), work)
                            for gpus, shard in ((1, False), (4, False), (4, True)))  # fmt: skip
    parameters = alone.rank.weights / 4
    assert alone.rank.states == 3 * alone.rank.weights, "Adam's two and the moving average"
    assert alone.rank.reduction == 0 and alone.communicated == 0
    assert alone.rank.logits == 2 * 4096 * 500, "all, in bfloat16"
    assert (alone.batches, four.batches, four.rows) == (4, 1, 64)
    assert four.communicated == pytest.approx(2 * 3 / 4 * 4 * parameters)
    assert sharded.communicated == pytest.approx(3 * 3 / 4 * 4 * parameters)
    assert sharded.rank.states == alone.rank.states // 4
    assert alone.compute_seconds == pytest.approx(3e6 * 4 * 4096 / (0.5 * 989e12)) == 4 * four.compute_seconds
    assert four.hours == pytest.approx(four.seconds * spec.train.steps / 3600)
    assert four.cost == pytest.approx(four.hours * 8)
    adding = plan(load_spec(MULTI30K, [*TINY, "train.accumulate=8"]), sharded.machine, work)
    assert adding.batches == 2 and adding.rank.gradients == 4 * sharded.rank.gradients, "whole until the last batch"
    frozen = plan(load_spec(MULTI30K, [*TINY, "train.freeze=[encoder/*]"]), four.machine, work)
    assert (
        frozen.rank.states == 3 * frozen.rank.gradients < four.rank.states and frozen.rank.weights == four.rank.weights
    )
    with pytest.raises(UserError, match=r"--shard and train\.low_rank exclude each other"):
        plan(load_spec(MULTI30K, [*TINY, "train.low_rank={parameters: [encoder/**]}"]), sharded.machine, work)
    low = plan(load_spec(MULTI30K, [*TINY, "train.low_rank={rank: 2, parameters: ['**/query']}"]), alone.machine, work)
    share = 2 * (64 + 64) / (64 * 64)  # of a matrix, both factors, which are states, too
    assert low.rank.states == (3 * share + 1) * low.rank.gradients, "and the moving average of whole weights"
    with pytest.raises(UserError, match=r"train\.recompute: 'encodr' matches no block"):
        plan(load_spec(MULTI30K, [*TINY, "train.recompute=[encodr]"]), four.machine, work)
    lion = plan(load_spec(MULTI30K, [*TINY, "train.optimizer={lion: {}}", "train.ema=0.99"]), four.machine, work)
    assert lion.rank.states == 2 * lion.rank.weights
    muon = plan(load_spec(MULTI30K, [*TINY, "train.optimizer={muon: {}}"]), four.machine, work)
    assert 2 * muon.rank.weights < muon.rank.states < 2.5 * muon.rank.weights  # one for most, and the average


def test_report_prints_a_plan(xformc: CommandLine) -> None:
    words = ["report", MULTI30K, *(word for setting in TINY for word in ("--set", setting)), "--train"]
    done = xformc(*words, "--gpu", "p100", "--gpus", "2", "--price", "2")
    assert done.out.startswith(
        "multi30k on 2 x p100, float32\neach step and GPU: 1 x 32 rows of 64 positions, 4,096 in all\n"
    )
    assert "fits: the card has 16 GB, 15.2 GB of them usable" in done.out
    found = json.loads(xformc(*words, "--gpu", "b200", "--batch-tokens", "640", "--json").out)
    assert found["precision"] == "bfloat16" and found["rows"] == 10 and found["fits"] and found["cost"] is None


def test_wrong_options_of_plans_are_refused(xformc: CommandLine) -> None:
    def said(*words: str | Path) -> str:
        return mistake(xformc("report", MULTI30K, "--set", TINY[-1], *words))

    assert "--gpus, --shard: no effect without --train" in said("--gpus", "2", "--shard")
    assert "--gpu k80: unknown card" in said("--train", "--gpu", "k80")
    assert "--mfu must be above 0 and at most 1, not 2" in said("--train", "--mfu", "2")
    assert "--price must be at most 1,000,000, not inf" in said("--train", "--price", "inf")
    assert "100 GPUs cannot share a batch of 64 rows" in said("--train", "--gpus", "100")
    assert "--train and --measure exclude each other" in said("--train", "--measure", "64")


def test_models_of_every_task_are_planned_or_refused(xformc: CommandLine) -> None:
    sizes = ("--set", "sizes.d_model=32", "--set", "sizes.heads=2", "--gpu", "a100", "--length", "8")
    for name in ("parsing", "captioner", "conformer", "graph_attention"):  # attention dropout; no tokens to read
        done = xformc("report", name, "--train", *sizes)
        assert (done.code, done.err) == (0, ""), name
    found = mistake(xformc("report", "sparse_experts", "--train", "--gpu", "a100", "--length", "8"))
    assert found.startswith("this model cannot be planned: its step needs the contents of tensors")
