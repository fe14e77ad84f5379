"""How fast the kernels' matrix products are, beside what the processor's instructions can do.

    python -m benchmarks.products                # all threads
    python -m benchmarks.products --threads 1

Peaks are operations a second (a multiplication and an addition are two) of loops that only multiply, in registers:
fused ones of float32, and dot products of 16-bit integers (VPDPWSSD), of bytes (VPDPBUSD), of bfloat16 (VDPBF16PS) and,
with AMX, of tiles. Products are those of rows with 512 x 512 weights, packing included, by the routines that an engine
would choose on this machine (XFORMC_KERNELS_ISA); the weights stay in the second-level cache. Each figure is the
highest of five turns. A share is that of the highest peak of its kind: int4 is multiplied as bytes.
"""

import argparse
import os
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
PEAK_OF = {"float32": "float32", "bfloat16": "bfloat16", "int16": "int16", "int8": "int8", "int4": "int8"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="the most threads at once")
    parser.add_argument("--seconds", type=float, default=0.1, help="of each turn")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        command = [str(program), str(given.threads), str(given.seconds)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    print(f"{lines[0]}\n")
    peaks, products = read(lines[1:])
    for threads in sorted({threads for _, threads in peaks} | {threads for _, threads, _ in products}):
        print(f"{threads} threads, 10^9 operations a second and, in brackets, their share of the peak")
        show(threads, peaks, products)


def build(folder: Path) -> Path:
    """Compile the program into a folder; return its file."""
    for command in (["-S", str(HERE), "-B", str(folder)], ["--build", str(folder), "--parallel"]):
        done = subprocess.run(["cmake", *command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"error: {done.stdout}{done.stderr}")
    return folder / "products"


Peaks = dict[tuple[str, int], float]
Products = dict[tuple[str, int, int], float]


def read(lines: list[str]) -> tuple[Peaks, Products]:
    """The peaks by kind and threads, and the products by precision, threads and rows."""
    peaks, products = defaultdict[tuple[str, int], float](float), Products()
    for line in lines:
        match line.split("\t"):
            case ["peak", name, threads, rate]:
                kind = name.removesuffix(" tiles")
                peaks[kind, int(threads)] = max(peaks[kind, int(threads)], float(rate))
            case ["product", name, rows, threads, rate]:
                products[name, int(threads), int(rows)] = float(rate)
            case _:
                raise SystemExit(f"error: the program said {line!r}")
    return peaks, products


def show(threads: int, peaks: Peaks, products: Products) -> None:
    """Print a table: a row for each precision, a column for each number of rows."""
    counts = sorted({rows for _, _, rows in products})
    print(f"{'':10}{'peak':>9}" + "".join(f"{f'{rows} rows':>16}" for rows in counts))
    for precision, kind in PEAK_OF.items():
        peak = peaks.get((kind, threads))
        cells = [f"{precision:10}{'' if peak is None else f'{peak / 1e9:.0f}':>9}"]
        for rows in counts:
            rate = products[precision, threads, rows]
            share = "" if peak is None else f" ({rate / peak:.2f})"
            cells.append(f"{f'{rate / 1e9:.0f}{share}':>16}")
        print("".join(cells))
    print()


if __name__ == "__main__":
    main()
