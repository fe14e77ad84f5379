"""Runs CTranslate2 in its own process (see child.py)."""

import sys
import time
from typing import Any

sys.modules["torch"] = None  # pyright: ignore[reportArgumentType]  # it would be imported for converters, and is not needed

import ctranslate2  # noqa: E402  # pyright: ignore[reportMissingImports]  # of the extra bench

from benchmarks.decode.child import answer_requests  # noqa: E402


class Peer:
    """The most recently loaded model."""

    def __init__(self) -> None:
        self.translator: Any = None
        self.generator: Any = None

    def load(self, folder: str, compute_type: str, threads: int, workers: int = 1) -> dict[str, Any]:
        """Load a model for `workers` batches at once on `threads` each; return the seconds and the compute type."""
        began = time.perf_counter()
        self.translator = ctranslate2.Translator(
            folder, inter_threads=workers, intra_threads=threads, compute_type=compute_type
        )
        return {"seconds": time.perf_counter() - began, "compute_type": self.translator.compute_type}

    def translate(
        self, source: list[list[str]], beam: int, length: int, length_penalty: float, sub_batch: int = 0
    ) -> dict[str, Any]:
        """Translate a batch; return the seconds, and the best hypothesis of each sentence."""
        began = time.perf_counter()
        found = self.translator.translate_batch(
            source, beam_size=beam, length_penalty=length_penalty, max_decoding_length=length, max_batch_size=sub_batch
        )
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "tokens": [one.hypotheses[0] for one in found]}

    def load_generator(self, folder: str, compute_type: str, threads: int) -> dict[str, Any]:
        """Load a language model; return the compute type."""
        self.generator = ctranslate2.Generator(folder, intra_threads=threads, compute_type=compute_type)
        return {"compute_type": self.generator.compute_type}

    def generate(self, prompts: list[list[int]], tokens: int) -> dict[str, Any]:
        """Continue prompts by this many most likely tokens; return the seconds, and the tokens."""
        given = [["<s>", *(f"t{token}" for token in prompt)] for prompt in prompts]
        began = time.perf_counter()
        found = self.generator.generate_batch(
            given, max_length=tokens, min_length=tokens, sampling_topk=1, include_prompt_in_result=False
        )
        seconds = time.perf_counter() - began
        written = [one.sequences_ids[0] for one in found]
        assert all(len(one) == tokens for one in written), "CTranslate2 wrote another number of tokens"
        return {"seconds": seconds, "tokens": written}

    def text(
        self, lines: list[str], tokenizer: str, beam: int, length_penalty: float, batch_tokens: int, length: int
    ) -> dict[str, Any]:
        """Translate lines with the SentencePiece model at `tokenizer`; return the seconds and the translated lines."""
        import sentencepiece

        pieces: Any = sentencepiece.SentencePieceProcessor(model_file=tokenizer)
        began = time.perf_counter()
        source = [[*tokens, "</s>"] for tokens in pieces.encode(lines, out_type=str)]
        found = self.translator.translate_batch(
            source,
            beam_size=beam,
            length_penalty=length_penalty,
            max_batch_size=batch_tokens,
            batch_type="tokens",
            max_decoding_length=length,
        )
        text = pieces.decode([one.hypotheses[0] for one in found])
        return {"seconds": time.perf_counter() - began, "lines": text}


if __name__ == "__main__":
    peer = Peer()
    methods = (peer.load, peer.translate, peer.text, peer.load_generator, peer.generate)
    answer_requests({method.__name__: method for method in methods})
