"""Decoding speed, memory, load time and size against CTranslate2, with the same weights, threads and beam.

    python -m benchmarks.decode                                   # the whole table; more than an hour
    python -m benchmarks.decode --quick                           # batches 1 and 8, 30 tokens, 3 rounds
    python -m benchmarks.decode --rows base-beam4-int8 small --batches 1 8 --lengths 30
    python -m benchmarks.decode --json decode.json --plots docs/images
    python -m benchmarks.decode --from decode.json --plots docs/images

Weights are randomly initialized, so that every sentence runs to its limit and both do the same work: sources of 25
random tokens, outputs of 30 and 100 tokens, a vocabulary of 32,000. In each round the engine, the floor and CTranslate2
take turns, CTranslate2 in its default setting and with CT2_FORCE_CPU_ISA=AVX512, each in its own process. Times are
medians; the faster of CTranslate2's settings counts. Above 32 sentences CTranslate2 may split its batch into 32s.

The floor is the time of the engine's matrix products with weights alone, by the same operators in the same process. Its
logits are full matrix products even if the engine screens them, so it may exceed the engine's time. `=` counts the
sentences whose best hypotheses have the same tokens as CTranslate2's. The two quantize int8 differently, so `=32`
counts those that are the same as in float32, first for xformc, then for CTranslate2.
"""

import argparse
import importlib.metadata
import json
import platform
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.decode import engines
from benchmarks.decode.cases import BATCHES, LENGTHS, Case, Row, chosen_rows
from benchmarks.decode.child import Child
from benchmarks.decode.plots import draw
from benchmarks.decode.speed import SETTINGS, Contest, Pace, Timing, cpuinfo, sentences

FOOTPRINT_BATCH, FOOTPRINT_LENGTH = 8, 30


def main() -> None:
    arguments = parse()
    if arguments.read is not None:
        results = json.loads(arguments.read.read_text(encoding="utf-8"))
    else:
        results = measure(arguments)
    if arguments.plots is not None:
        draw(results, arguments.plots)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", default=[], help="prefixes of row names; default: all rows")
    parser.add_argument("--batches", nargs="*", type=int, default=list(BATCHES), choices=BATCHES)
    parser.add_argument("--lengths", nargs="*", type=int, default=list(LENGTHS))
    parser.add_argument("--rounds", type=int, default=7, help="maximum rounds of each case")
    parser.add_argument("--seconds", type=float, default=40.0, help="start no new round of a case after this time")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--target", choices=("portable", "cpu", "native"), default="native")
    parser.add_argument("--quick", action="store_true", help="batches 1 and 8, 30 tokens, 3 rounds")
    parser.add_argument("--no-footprint", action="store_true", help="skip memory and load times")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--from", dest="read", type=Path, metavar="FILE", help="read results instead of measuring")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw the results")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.batches, arguments.lengths, arguments.rounds = [1, 8], [30], 3
    return arguments


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure the chosen rows; print each timing at once, and write the results after each row."""
    results: dict[str, Any] = {"machine": machine(arguments), "timings": [], "footprints": []}
    for row in chosen_rows(arguments.rows):
        with tempfile.TemporaryDirectory() as name:
            results["timings"] += [timing.as_json() for timing in time_row(row, Path(name), arguments)]
            if not arguments.no_footprint:
                results["footprints"].append(footprint(row, Path(name), arguments))
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return results


def time_row(row: Row, folder: Path, arguments: argparse.Namespace) -> list[Timing]:
    """Time the cases of a row; the models stay in `folder`."""
    spec = engines.make_spec(row.model, folder)
    weights = engines.fresh_weights(spec, arguments.target)
    options = engines.write_engine(spec, weights, row.precision, arguments.target, folder / "engine")
    engines.write_peer(spec, weights, row.precision, folder / "peer")
    contest = Contest(folder / "engine", folder / "peer", options, row.precision, arguments.target, arguments.threads)
    print(f"\n{row.name}, {arguments.threads} threads, {arguments.target}; milliseconds per batch", flush=True)
    print(
        f"{'batch':>5} {'tokens':>6} {'xformc':>9} {'CTranslate2':>11} {'ratio':>6} {'wanted':>6} {'floor':>8} "
        f"{'of it':>5} {'=':>7} {'=32':>9} {'rounds':>6}  setting"
    )
    cases = [Case(row, batch, length) for length in arguments.lengths for batch in arguments.batches]
    references = reference_hypotheses(row, spec, weights, cases, folder, arguments)
    timings = list[Timing]()
    for case in cases:
        timing = contest.measure(case, Pace(arguments.rounds, arguments.seconds), references.get(case))
        print(line(timing), flush=True)
        timings.append(timing)
    contest.close()
    return timings


def reference_hypotheses(
    row: Row, spec: Any, weights: Any, cases: list[Case], folder: Path, arguments: argparse.Namespace
) -> dict[Case, tuple[list[list[str]], list[list[str]]]]:
    """Return the hypotheses of both systems with the weights in float32, by case; none for a float32 row."""
    if row.precision == "float32":
        return {}
    options = engines.write_engine(spec, weights, "float32", arguments.target, folder / "engine32")
    engines.write_peer(spec, weights, "float32", folder / "peer32")
    exact = Contest(folder / "engine32", folder / "peer32", options, "float32", arguments.target, arguments.threads)
    found = {case: exact.best(case) for case in cases}
    exact.close()
    return found


def line(timing: Timing) -> str:
    """Return a line of the table."""
    exact = f"{timing.reference}, {timing.peer_reference}" if timing.precision != "float32" else ""
    return (
        f"{timing.batch:5} {timing.length:6} {1000 * timing.xformc:9.1f} {1000 * timing.ctranslate2:11.1f} "
        f"{timing.ratio:6.2f} {timing.target:6.1f} {1000 * timing.floor:8.1f} {timing.floor / timing.xformc:5.2f} "
        f"{f'{timing.equal}/{timing.batch}':>7} {exact:>9} {timing.rounds:6}  {timing.setting}"
    )


def footprint(row: Row, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure peak memory, load time and size of the row's models in `folder`, each in a fresh process."""
    source, names = sentences(FOOTPRINT_BATCH)
    common = {"threads": arguments.threads, "beam": row.beam, "length": FOOTPRINT_LENGTH}
    own = Child("footprint", {})
    found = own.ask(
        do="engine", folder=str(folder / "engine"), target=arguments.target, source=source.tolist(), **common
    )
    own.close()
    result: dict[str, Any] = {"model": row.model, "beam": row.beam, "precision": row.precision}
    result["xformc"] = {**found, "disk": engines.bytes_on_disk(folder / "engine")}
    peers = list[dict[str, Any]]()
    for variables in SETTINGS.values():
        child = Child("footprint", variables)
        peers.append(
            child.ask(
                do="peer",
                folder=str(folder / "peer"),
                precision=engines.peer_precision(row.precision),
                source=names,
                **common,
            )
        )
        child.close()
    best = {key: min(peer[key] for peer in peers) for key in peers[0]}
    result["ctranslate2"] = {**best, "disk": engines.bytes_on_disk(folder / "peer")}
    for name in ("xformc", "ctranslate2"):
        one = result[name]
        print(
            f"{name:12} peak {one['peak'] / 1e6:7.0f} MB ({(one['peak'] - one['before']) / 1e6:.0f} MB more than "
            f"before loading), load {one['load']:.2f} s, first sentence after {one['first']:.2f} s, "
            f"{one['disk'] / 1e6:.0f} MB on disk"
        )
    return result


def machine(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the machine, settings and package versions of the figures."""
    names = [text.split(":")[1].strip() for text in cpuinfo() if text.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "threads": arguments.threads,
        "target": arguments.target,
        **{name: importlib.metadata.version(name) for name in ("onnxruntime", "ctranslate2")},
    }


if __name__ == "__main__":
    main()
