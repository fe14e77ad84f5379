"""Runs transformers' `generate`, or onnxruntime-genai, on a language model in its own process (see child.py)."""

import json
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.decode.child import answer_requests

BEGIN = 2


class Peers:
    """The most recently loaded model."""

    def __init__(self) -> None:
        self._model: Any = None
        self._threads = 1

    def load_transformers(self, folder: str, threads: int) -> dict[str, Any]:
        """Load a folder of transformers in float32."""
        import torch

        torch.set_num_threads(threads)
        import_module("transformers").utils.logging.disable_progress_bar()
        self._model = import_module("transformers").AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return {"kind": type(self._model).__name__}

    def generate_transformers(self, prompts: list[list[int]], tokens: int) -> dict[str, Any]:
        """Continue prompts by this many most likely tokens; return the seconds, and the tokens."""
        import torch

        given = torch.tensor([[BEGIN, *prompt] for prompt in prompts])
        options = {"do_sample": False, "min_new_tokens": tokens, "max_new_tokens": tokens, "pad_token_id": 0}
        began = time.perf_counter()
        with torch.inference_mode():
            found = self._model.generate(given, attention_mask=torch.ones_like(given), **options)
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "tokens": found[:, given.shape[1] :].tolist()}

    def load_genai(self, folder: str, threads: int) -> dict[str, Any]:
        """Load a model of onnxruntime-genai's builder."""
        path = Path(folder) / "genai_config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = threads
        path.write_text(json.dumps(config), encoding="utf-8")
        self._model = import_module("onnxruntime_genai").Model(folder)
        return {}

    def generate_genai(self, prompts: list[list[int]], tokens: int) -> dict[str, Any]:
        """The same as `generate_transformers`."""
        genai = import_module("onnxruntime_genai")
        length = 1 + len(prompts[0]) + tokens
        began = time.perf_counter()
        params = genai.GeneratorParams(self._model)
        params.set_search_options(do_sample=False, batch_size=len(prompts), max_length=length, min_length=length)
        generator = genai.Generator(self._model, params)
        generator.append_tokens([[BEGIN, *prompt] for prompt in prompts])
        while not generator.is_done():
            generator.generate_next_token()
        written = [_tokens(generator.get_sequence(row), tokens) for row in range(len(prompts))]
        return {"seconds": time.perf_counter() - began, "tokens": written}


def _tokens(sequence: Sequence[int], count: int) -> list[int]:
    return [int(token) for token in sequence[len(sequence) - count :]]


if __name__ == "__main__":
    peers = Peers()
    methods = (peers.load_transformers, peers.generate_transformers, peers.load_genai, peers.generate_genai)
    answer_requests({method.__name__: method for method in methods})
