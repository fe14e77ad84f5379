"""Profile of a decoding step by operator, from ONNX Runtime's profiler.

python -m benchmarks.step_profile [--model base] [--target cpu native] [--precision float32] [--batch 1 32]

The engine has randomly initialized weights; sources have 25 random tokens, outputs `--length`. Each time is the sum
over all nodes of an operator, preparation included, divided by the number of steps. Profiling costs about two
microseconds per node. The nodes of sequences are measured one by one.
"""

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime

from benchmarks.decode.cases import MODELS
from benchmarks.decode.engines import fresh_weights, make_spec, write_engine
from benchmarks.decode.floor import plain_model
from xformc.format.targets import TRAITS
from xformc.runtime.library import find_library

SOURCE_TOKENS = 25
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="base")
    parser.add_argument("--target", nargs="+", choices=("portable", "cpu", "native"), default=("cpu", "native"))
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--batch", nargs="+", type=int, default=(1, 32))
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--length", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    for target in arguments.target:
        for batch in arguments.batch:
            steps, times, counts = profile(target, batch, arguments)
            total = sum(times.values())
            print(f"\n{arguments.model}, {arguments.precision}, {target}, batch {batch}, beam {arguments.beam}")
            print(f"{'operator':<28} {'ms/step':>9} {'share':>6} {'nodes/step':>11}")
            for kind, time in times.most_common(12):
                nodes = counts[kind] / steps
                print(f"{kind:<28} {time / steps / 1000:9.3f} {time / total:6.1%} {nodes:11.1f}")
            print(f"{'all':<28} {total / steps / 1000:9.3f} {'':>6} {sum(counts.values()) / steps:11.1f}", flush=True)


def profile(target: Any, batch: int, arguments: argparse.Namespace) -> tuple[int, Counter[str], Counter[str]]:
    """Return the number of steps, and the microseconds and number of nodes of each operator."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spec = make_spec(arguments.model, folder)
        write_engine(spec, fresh_weights(spec, target), arguments.precision, target, folder / "engine")
        options = cast(Any, onnxruntime).SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = arguments.threads, 4
        options.enable_profiling, options.profile_file_prefix = True, str(folder / "profile")
        if TRAITS[target].kernels:
            options.register_custom_ops_library(str(find_library().path))
        path = str(folder / "engine" / "plain.onnx")
        onnx.save(plain_model(folder / "engine"), path)
        session: Any = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        feeds = {
            "source": np.random.default_rng(0).integers(4, spec.inputs["source"].vocabulary, (batch, SOURCE_TOKENS)),
            "beam_size": np.array(arguments.beam),
            "max_length_factor": np.array([0.0], np.float32),
            "max_length_offset": np.array([arguments.length]),
        }
        for _ in range(ROUNDS):
            session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text())
    times, counts = Counter[str](), Counter[str]()
    for event in events:
        kind = event.get("args", {}).get("op_name", "")
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time") and kind != "Loop":
            times[kind] += event["dur"]
            counts[kind] += 1
    return ROUNDS * arguments.length, times, counts


if __name__ == "__main__":
    main()
