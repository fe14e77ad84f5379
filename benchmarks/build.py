"""Time of each stage of `xformc build` with randomly initialized weights, and peak memory, one process per spec.

python benchmarks/build.py [transformer_base transformer_big ...] [--target portable]
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xformc.format.targets import Target

SPECS = Path(__file__).parent.parent / "specs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="*", default=["transformer_base", "transformer_big"])
    parser.add_argument("--target", choices=("portable", "cpu"), default="portable")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        build(arguments.specs[0], arguments.target)
        return
    for name in arguments.specs:
        subprocess.run([sys.executable, __file__, name, "--target", arguments.target, "--here"], check=True)


def build(name: str, target: "Target") -> None:
    """Build one spec and print how long each stage took."""
    began = time.perf_counter()
    marks = [("import", began)]

    from xformc.compiler.build import build_engine  # its time is measured
    from xformc.compiler.spec import load_spec

    with tempfile.TemporaryDirectory() as folder:
        build_engine(
            load_spec(SPECS / f"{name}.yaml"),
            None,
            None,
            target,
            Path(folder) / "engine",
            lambda stage: marks.append((stage, time.perf_counter())),
        )
    ended = time.perf_counter()
    print(f"{name}, {target}")
    for (stage, start), (_, stop) in zip(marks, [*marks[1:], ("", ended)], strict=True):
        print(f"  {stage:18} {stop - start:6.1f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"  {'total':18} {ended - began:6.1f} s, peak {peak:.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
