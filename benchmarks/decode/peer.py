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
    answer_requests({"load": peer.load, "translate": peer.translate, "text": peer.text})
