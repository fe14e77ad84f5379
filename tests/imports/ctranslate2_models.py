"""Small random language models of transformers, as CTranslate2's own converter writes them.

`python -m tests.imports.ctranslate2_models` imports each and compares an engine with CTranslate2: the logits, and the
most likely tokens after 20 random prompts. Then it exports the import, and for families that are imported from
transformers' folder, too, that import, and compares again.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.imports.transformers_models import GPT2, LLAMA, OPT, SIZES, WIDE, save
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.backends.torch.parameter_paths import parameters_by_path
from xformc.compiler.build import build_engine
from xformc.compiler.pipeline import begin, run_passes
from xformc.compiler.spec import load_spec
from xformc.compiler.weight_files import load_weights
from xformc.exports.ctranslate2 import export_ctranslate2
from xformc.format.manifest import SampleOptions
from xformc.imports.family import shipped_families
from xformc.imports.import_model import import_model
from xformc.runtime.engine import load
from xformc.runtime.generation.generate import Prompt, sample

VOCABULARY = 64
NAMES = ["<unk>", "<s>", "</s>", *(f"t{number}" for number in range(3, VOCABULARY))]
UNKNOWN, BEGIN, END = 0, 1, 2
OF_OPT = {**OPT, "ffn_dim": 48, "max_position_embeddings": 64, "init_std": 0.3}
GPTJ = {**GPT2, "rotary_dim": 4}
FALCON = {**SIZES, "alibi": False, "bias": False}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500.0}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", GPT2),
    "opt": ("OPT", OF_OPT),
    "opt, norms after": ("OPT", {**OF_OPT, "do_layer_norm_before": False}),
    "gpt_neox": ("GPTNeoX", {**WIDE, "rotary_pct": 0.5}),
    "gpt_neox, in turn": ("GPTNeoX", {**WIDE, "rotary_pct": 1.0, "use_parallel_residual": False}),
    "gptj": ("GPTJ", GPTJ),
    "codegen": ("CodeGen", GPTJ),
    "gpt_bigcode": ("GPTBigCode", GPT2),
    "bloom": ("Bloom", {"hidden_size": 48, "n_layer": 2, "n_head": 6, "initializer_range": 0.3}),
    "falcon": ("Falcon", {**FALCON, "multi_query": True, "new_decoder_architecture": False, "parallel_attn": True}),
    "falcon, grouped": (
        "Falcon",
        {**FALCON, "multi_query": False, "new_decoder_architecture": True, "num_kv_heads": 2},
    ),
    "llama": ("Llama", {**LLAMA, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
    "llama, tied": ("Llama", {**WIDE, "tie_word_embeddings": True, "attention_bias": True}),
    "llama, llama3": ("Llama", {**LLAMA, "rope_parameters": {**LLAMA3, "original_max_position_embeddings": 16}}),
    "mistral": ("Mistral", {**LLAMA, "head_dim": 12, "sliding_window": 12}),
    "qwen2": ("Qwen2", LLAMA),
    "qwen3": ("Qwen3", {**LLAMA, "head_dim": 12, "tie_word_embeddings": True}),
    "gemma": ("Gemma", {**LLAMA, "head_dim": 12}),
    "phi": ("Phi", {**LLAMA, "partial_rotary_factor": 0.5}),
}
"""A small config of each kind of model that CTranslate2 converts, but for `phi`, whose current form it does not."""


def write_origin(folder: Path, name: str) -> Path:
    """A folder of transformers with a tokenizer that has words alone."""
    settings = {"bos_token_id": BEGIN, "eos_token_id": END, "vocab_size": VOCABULARY}
    save(folder, MODELS[name][0], {**MODELS[name][1], **settings})
    words = {"type": "WordLevel", "vocab": {one: place for place, one in enumerate(NAMES)}, "unk_token": NAMES[UNKNOWN]}
    nothing = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    split = {"pre_tokenizer": {"type": "WhitespaceSplit"}}
    content = {"version": "1.0", **nothing, **split, "added_tokens": [], "model": words}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    special = {"unk_token": NAMES[UNKNOWN], "bos_token": NAMES[BEGIN], "eos_token": NAMES[END], "pad_token": NAMES[END]}
    names = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return folder


def convert(folder: Path, out: Path, quantization: str | None = None) -> Path:
    """What CTranslate2 makes of a folder of transformers, with the tokenizer beside it."""
    import transformers
    from ctranslate2.converters import TransformersConverter  # pyright: ignore[reportMissingImports]

    neox: Any = transformers.GPTNeoXForCausalLM  # whose old names the converter reads
    neox.embed_out = property(lambda model: model.lm_head)
    part = json.loads((folder / "config.json").read_text()).get("rope_parameters") or {}
    transformers.GPTNeoXConfig.rotary_pct = part.get("partial_rotary_factor")  # pyright: ignore
    converter = TransformersConverter(str(folder), copy_files=["tokenizer.json"])
    converter.convert(str(out), quantization=quantization)
    return out


class Ours:
    """A run as a module of PyTorch."""

    def __init__(self, run: Path) -> None:
        spec = load_spec(run / "spec.yaml")
        arrays = load_weights(run, spec.graph())
        self.module = TorchModule(run_passes(begin(spec), without=("loss",)).graph).eval()
        with torch.no_grad():
            for path, parameter in parameters_by_path(self.module).items():
                parameter.copy_(torch.as_tensor(arrays[path]))

    def logits(self, texts: Sequence[Sequence[int]]) -> np.ndarray:
        """The logits [batch, length, vocabulary] of texts of one length."""
        with torch.no_grad():
            return self.module(torch.tensor(texts)).numpy()

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """The most likely tokens after a prompt, up to an end token."""
        text = list(prompt)
        while len(text) < len(prompt) + count and text[-1] != END:
            text.append(int(self.logits([text])[0, -1].argmax()))
        return [one for one in text[len(prompt) :] if one != END]


class Theirs:
    """A model of CTranslate2 on one thread."""

    def __init__(self, folder: Path) -> None:
        import ctranslate2  # pyright: ignore[reportMissingImports]

        self.generator = ctranslate2.Generator(str(folder), intra_threads=1, compute_type="float32")

    def logits(self, texts: Sequence[Sequence[int]]) -> np.ndarray:
        """The logits [batch, length, vocabulary] of texts of one length."""
        return np.array(self.generator.forward_batch([list(text) for text in texts]))

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """The most likely tokens after a prompt, up to an end token."""
        words = [[NAMES[one] for one in prompt]]
        (found,) = self.generator.generate_batch(words, max_length=count, include_prompt_in_result=False)
        return found.sequences_ids[0]


def prompts(count: int, most: int = 9) -> list[list[int]]:
    """Random texts of 1 to `most` tokens."""
    random = np.random.default_rng(3)
    return [random.integers(3, VOCABULARY, int(random.integers(1, most + 1))).tolist() for _ in range(count)]


def difference(ours: Ours, theirs: Theirs) -> float:
    """The largest difference of the logits of random texts, as a part of their standard deviation."""
    texts = np.random.default_rng(4).integers(3, VOCABULARY, (4, 12)).tolist()
    one, other = ours.logits(texts), theirs.logits(texts)
    return float(np.abs(one - other).max() / other.std())


def compare(run: Path, theirs: Path, engine: Path) -> str:
    """A line about a run and a model of CTranslate2; the engine is built of the run unless it is there."""
    spec = load_spec(run / "spec.yaml")
    if not engine.exists():
        build_engine(spec, load_weights(run, spec.graph()), None, "portable", engine)
    session, peer, equal, count = load(engine, threads=1).session, Theirs(theirs), 0, 24
    options, begun = SampleOptions(0.0, 0, 1.0, count), list(spec.inputs["text"].special.begun)
    for prompt in prompts(20):
        found = sample(session, [Prompt(prompt, 0)], options)
        text = found.tokens[0][: found.lengths[0]].tolist()
        equal += [one for one in text if one != END] == peer.greedy([*begun, *prompt], count)
    return f"logits {difference(Ours(run), peer):.1e}, {equal} of 20 continuations"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    for name in parser.parse_args().models:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            origin, lines = write_origin(folder / "origin", name), list[str]()
            if name != "phi":
                theirs = convert(origin, folder / "theirs")
                import_model(theirs, folder / "import")
                lines.append(f"import {compare(folder / 'import', theirs, folder / 'engine')}")
                export_ctranslate2(folder / "import", folder / "export")
                lines.append(f"export {compare(folder / 'import', folder / 'export', folder / 'engine')}")
            family = json.loads((origin / "config.json").read_text())["model_type"]
            if family in shipped_families() and name not in ("opt, norms after", "gpt_neox, in turn"):
                import_model(origin, folder / "family")
                export_ctranslate2(folder / "family", folder / "from_family")
                found = compare(folder / "family", folder / "from_family", folder / "family_engine")
                lines.append(f"export of {family} {found}")
            print(f"{name}: {'; '.join(lines)}", flush=True)


if __name__ == "__main__":
    main()
