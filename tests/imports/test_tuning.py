"""An imported model is trained further: its loss is the origin's, with the origin's tokenizer and special tokens."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import CommandLine, mistake

from tests.imports.test_replay import BART, MARIAN
from tests.imports.test_tokenizers import SENTENCES, write_byte_pairs, write_marian
from tests.imports.transformers_models import GPT2, save
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.pipeline import SHARED, begin, run_passes
from xformc.compiler.spec import Spec, load_spec
from xformc.trainer.data.batches import Batch, make_batch
from xformc.trainer.data.data_schema import data_schema
from xformc.trainer.data.dataset import encode_corpus, find_corpus, read_corpus
from xformc.trainer.data.foreign_vocabulary import tokenizer_in
from xformc.trainer.start import start_from

transformers: Any = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

PAIRS = list(pairwise(SENTENCES[:5]))
RECIPE = ["steps=12", "batch_tokens=400", "max_length=60", "checkpoint.every_steps=6", "precision=float32"]


def write_pairs(folder: Path) -> Path:
    folder.mkdir()
    for name in ("train", "valid"):
        (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    return folder


def write_texts(folder: Path) -> Path:
    folder.mkdir()
    for name in ("train", "valid"):
        (folder / f"{name}.txt").write_text("".join(f"{text}\n" for text in SENTENCES[:4]))
    return folder


def marian(folder: Path) -> tuple[Any, Any]:
    """A random Marian model of transformers and its tokenizer."""
    folder.mkdir()
    size = len(write_marian(folder))
    last = {"vocab_size": size, "pad_token_id": size - 1, "decoder_start_token_id": size - 1}
    save(folder, "Marian", {**MARIAN, **last})
    return transformers.MarianMTModel.from_pretrained(folder), transformers.MarianTokenizer.from_pretrained(folder)


def bart(folder: Path) -> tuple[Any, Any]:
    """A random BART, whose texts begin with <s> after the token that its decoder starts with."""
    folder.mkdir()
    write_byte_pairs(folder / "tokenizer.json")
    content = json.loads((folder / "tokenizer.json").read_text())
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    vocabulary = {name: place for place, name in enumerate(names)}
    vocabulary |= {piece: place + 4 for piece, place in content["model"]["vocab"].items() if place}
    content["model"]["vocab"] = vocabulary
    content["added_tokens"] = [
        {"id": place, "content": name, "special": True, **dict.fromkeys(("single_word", "lstrip", "rstrip"), False)}
        | {"normalized": False}
        for place, name in enumerate(names)
    ]
    around = {"sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": False}
    content["post_processor"] = {"type": "RobertaProcessing", **around}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    save(folder, "Bart", {**BART, "vocab_size": 304, "pad_token_id": 1, "max_position_embeddings": 128})
    kind = transformers.PreTrainedTokenizerFast
    tokenizer = kind(tokenizer_file=str(folder / "tokenizer.json"), pad_token="<pad>", eos_token="</s>")
    return transformers.BartForConditionalGeneration.from_pretrained(folder), tokenizer


def gpt2(folder: Path) -> tuple[Any, Any]:
    folder.mkdir()
    write_byte_pairs(folder / "tokenizer.json")
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    save(folder, "GPT2", {**GPT2, **ends, "vocab_size": 300, "n_positions": 64})
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    return transformers.GPT2LMHeadModel.from_pretrained(folder), tokenizer


def batch_of(spec: Spec, data: Path, run: Path) -> Batch:
    """All training examples in one batch."""
    schema = data_schema(spec)
    corpus = encode_corpus(read_corpus(find_corpus(data, schema), schema), schema, tokenizer_in([run], schema))
    return make_batch(corpus.train, np.arange(len(corpus.train)))  # pyright: ignore[reportArgumentType]


def our_loss(spec: Spec, batch: Batch, run: Path) -> tuple[float, int]:
    """The mean loss without label smoothing, and the number of labels."""
    model = TorchModule(run_passes(run_passes(begin(spec), after=SHARED)).graph).eval()
    start_from(run, model)
    with torch.no_grad():
        _, total, count = model(*batch.inputs.values(), *batch.targets.values())
    return float(total) / int(count), int(count)


def their_loss(model: Any, tokenizer: Any, pairs: bool) -> tuple[float, int]:
    """The loss that the origin computes of the texts itself."""
    if pairs:
        sources, targets = (list(side) for side in zip(*PAIRS, strict=True))
        given = tokenizer(sources, text_target=targets, padding=True, return_tensors="pt")
        labels = given["labels"].masked_fill(given["labels"] == tokenizer.pad_token_id, -100)
        loss = model(given["input_ids"], given["attention_mask"], labels=labels).loss
        return float(loss), int((labels != -100).sum())
    total, count = 0.0, 0
    for text in SENTENCES[:4]:
        ids = torch.tensor([[*tokenizer(text)["input_ids"], 0]])
        total, count = total + float(model(ids, labels=ids).loss) * (ids.shape[1] - 1), count + ids.shape[1] - 1
    return total / count, count


@pytest.mark.parametrize("make", [marian, bart, gpt2])
def test_the_first_loss_is_the_origins_and_falls(xformc: CommandLine, tmp_path: Path, make) -> None:
    model, tokenizer = make(tmp_path / "model")
    run, tuned = tmp_path / "run", tmp_path / "tuned"
    assert xformc("import", tmp_path / "model", "-o", run).code == 0
    pairs = make is not gpt2
    data = (write_pairs if pairs else write_texts)(tmp_path / "data")
    settings = [f"train.{one}" for one in RECIPE]
    spec = load_spec(run / "spec.yaml", settings)
    found, count = our_loss(spec, batch_of(spec, data, run), run)
    wanted, labels = their_loss(model.eval(), tokenizer, pairs)
    assert count == labels and found == pytest.approx(wanted, rel=1e-5)
    options = [part for one in settings for part in ("--set", one)]
    missing = mistake(xformc("train", run, "--data", data, "-o", tuned, *options))
    assert "special_tokens" in missing and "--start" in missing and not tuned.exists()
    result = xformc("train", run, "--data", data, "--start", run, "-o", tuned, *options)
    assert result.code == 0, result.err
    losses = [json.loads(line) for line in (tuned / "metrics.jsonl").read_text().splitlines()]
    valid = [line["valid_loss"] for line in losses if "valid_loss" in line]
    assert valid[-1] < found
    files = {path.name: path.read_bytes() for path in run.iterdir() if path.name.endswith((".model", "tokenizer.json"))}
    assert files and all((tuned / name).read_bytes() == content for name, content in files.items())
    assert xformc("build", tuned, "-o", tmp_path / "engine").code == 0
