"""Requests that arrive at random times: how many a second are answered in time.

    python -m benchmarks.arrivals translation RUN test.en              # lines, translated with beam 4; 15 minutes
    python -m benchmarks.arrivals generation test.en test.de           # prompts and continuations of these lengths
    python -m benchmarks.arrivals translation RUN test.en --seconds 2  # 4 minutes

Requests arrive as a Poisson process. The rate is raised until the 95th percentile of the time from the arrival of a
request to its whole answer is above the bound, and then narrowed down. Printed are the highest rate that was held, and
the median and the 95th percentile at it.

- `slots`: batches that refill (`Engine.serve`), one for each worker.
- `batches`: whatever waits is one batch, of at most as many texts; the next one begins when all of it has ended. With
  workers, `translate` splits it.
- `CT2 .., batches`: the same with CTranslate2. A continuation is answered when it has its tokens, as its callback says.
- `CT2 .., each`: each text is a call of its own, `translate_batch(.., asynchronous=True)`, which CTranslate2 queues, in
  as many workers.

`generation` has the sizes of GPT-2 small, and random weights, the same for all, which take the most likely token. Its
prompts have the number of words of the lines of the first file, and its continuations those of the second.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.arrivals import generation, translation
from benchmarks.arrivals.rates import highest
from xformc.runtime.text.lines import read_text_file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["translation", "generation"])
    parser.add_argument("files", type=Path, nargs=2, help="a run and a source text, or a text of prompts and one more")
    parser.add_argument("--precision", default="int8", choices=["float32", "int8"])
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--bound", type=float, default=0.5, help="seconds of the 95th percentile")
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--tokens-at-once", type=int, help="the most tokens of a call; as many as take 20 ms")
    parser.add_argument("--workers", type=int, default=2, help="of slots, and of CTranslate2 with a call for each text")
    parser.add_argument("--seconds", type=float, default=8, help="of arrivals for each rate")
    parser.add_argument("--rate", type=float, default=16, help="the first rate, requests a second")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", help="players that count, by the beginnings of their names")
    arguments = parser.parse_args()
    print(
        f"{arguments.precision}, 95% within {arguments.bound} s, {arguments.threads} threads, "
        f"{arguments.slots} slots, {arguments.workers} workers"
    )
    print(f"{'':24}{'requests/s':>10}{'median':>10}{'95%':>10}")
    with tempfile.TemporaryDirectory() as name:
        asked, players = given(Path(name), arguments)
        for player, play in players.items():
            if arguments.only and not player.startswith(tuple(arguments.only)):
                continue
            held = highest(play, asked, rate=arguments.rate, seconds=arguments.seconds, bound=arguments.bound)
            shown = "no rate was held"
            if held is not None:
                shown = f"{held.rate:10.1f}{held.median * 1000:7.0f} ms{held.late * 1000:7.0f} ms"
            print(f"{player:24}{shown}", flush=True)


def given(folder: Path, arguments: argparse.Namespace) -> tuple[Any, Any]:
    """Return what may be asked for, and the players by name."""
    if arguments.what == "translation":
        arguments.run, text = arguments.files
        return [line for line in read_text_file(text) if line.strip()], translation.players(folder, arguments)
    lines = zip(*(read_text_file(path) for path in arguments.files), strict=True)
    return generation.prompts(list(lines)), generation.players(folder, arguments)


if __name__ == "__main__":
    main()
