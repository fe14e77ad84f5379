"""Runs CTranslate2 in its own process (see child.py)."""

import sys
import time
from collections.abc import Sequence
from queue import Queue
from threading import Thread
from typing import Any

sys.modules["torch"] = None  # pyright: ignore[reportArgumentType]  # it would be imported for converters, and is not needed

import ctranslate2  # noqa: E402  # pyright: ignore[reportMissingImports]  # of the extra bench

from benchmarks.arrivals.rates import Clock, Request, in_batches  # noqa: E402
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
        self, source: list[list[str]], beam: int, length: int, length_penalty: float, sub_batch: int = 0, least: int = 1
    ) -> dict[str, Any]:
        """Translate a batch, each sentence to at least `least` tokens; return the seconds and the best hypotheses."""
        began = time.perf_counter()
        found = self.translator.translate_batch(
            source,
            beam_size=beam,
            length_penalty=length_penalty,
            min_decoding_length=least,
            max_decoding_length=length,
            max_batch_size=sub_batch,
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

    def generate_each(self, prompts: list[list[int]], tokens: list[int]) -> dict[str, Any]:
        """Continue each prompt by its number of most likely tokens; return the seconds after which each had them."""
        given = [["<s>", *(f"t{token}" for token in prompt)] for prompt in prompts]
        ended, began, written = [0.0] * len(prompts), time.perf_counter(), [0] * len(prompts)

        def step(result: Any) -> bool:
            written[result.batch_id] += 1
            done = written[result.batch_id] >= tokens[result.batch_id]
            if done and not ended[result.batch_id]:
                ended[result.batch_id] = time.perf_counter() - began
            return done

        most = max(tokens)
        options = {"sampling_topk": 1, "include_prompt_in_result": False, "callback": step}
        found = self.generator.generate_batch(given, max_length=most, min_length=most, **options)
        assert [len(one.sequences_ids[0]) for one in found] == tokens, (
            f"CTranslate2 wrote {[len(one.sequences_ids[0]) for one in found]} tokens, not {tokens}"
        )
        return {"ended": ended}

    def arrivals(
        self,
        *,
        lines: list[str],
        arrives: list[float],
        tokenizer: str,
        beam: int,
        length_penalty: float,
        length: int,
        most: int,
        workers: int,
    ) -> dict[str, Any]:
        """Translate lines as they arrive; return the seconds that each took.

        `most`: whatever waits is a batch of at most this many lines, which the workers share; 0 for a call for each.
        """
        import sentencepiece

        pieces: Any = sentencepiece.SentencePieceProcessor(model_file=tokenizer)
        options = {"beam_size": beam, "length_penalty": length_penalty, "max_decoding_length": length}

        def translate(some: Sequence[str]) -> list[float]:
            share = -(-len(some) // workers)
            tokens = pieces.encode(some, out_type=str)
            found = self.translator.translate_batch(tokens, max_batch_size=share, **options)
            pieces.decode([one.hypotheses[0] for one in found])
            return [time.perf_counter()] * len(some)

        requests = [Request(line, at) for line, at in zip(lines, arrives, strict=True)]
        if most:
            return {"took": in_batches(translate, most, requests)}
        clock, took = Clock(requests), list[float]()
        waiting: Queue[Any] = Queue()

        def wait() -> None:
            for request in requests:
                (one,) = waiting.get()
                pieces.decode(one.result().hypotheses[0])
                took.append(clock.took(request, time.perf_counter()))

        thread = Thread(target=wait)
        thread.start()
        while some := clock.take(1):
            tokens = pieces.encode([one.what for one in some], out_type=str)
            waiting.put(self.translator.translate_batch(tokens, asynchronous=True, **options))
        thread.join()
        return {"took": took}

    def text(
        self,
        lines: list[str],
        tokenizer: str,
        beam: int,
        length_penalty: float,
        batch_tokens: int,
        length: int,
        *,
        listed: bool = False,
    ) -> dict[str, Any]:
        """Translate lines with the SentencePiece model at `tokenizer`; return the seconds and the translated lines.

        `listed`: with the tokens of the model's vocabulary map alone.
        """
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
            use_vmap=listed,
        )
        text = pieces.decode([one.hypotheses[0] for one in found])
        return {"seconds": time.perf_counter() - began, "lines": text}


if __name__ == "__main__":
    peer = Peer()
    methods = (
        peer.load,
        peer.translate,
        peer.text,
        peer.arrivals,
        peer.load_generator,
        peer.generate,
        peer.generate_each,
    )
    answer_requests({method.__name__: method for method in methods})
