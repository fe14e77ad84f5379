"""Train every architecture of the zoo, build its engine with the certificate, and score the engine.

python -m benchmarks.zoo [--quick] [--only NAME ...] [--out FOLDER]

The results are printed as a table and written to FOLDER/results.json, which keeps the rows of earlier runs. The exit
code is 1 if a row misses its score.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.zoo.harness import Outcome, data, run_row
from benchmarks.zoo.rows import Row, read_rows
from xformc.files import atomic_write

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""The number of cores; each row gets one, because a small model is as fast on one core as on several."""

HEAD = f"{'spec':28} {'parameters':>10} {'task':12} {'training':>9} {'score':36} {'needed':>12} certificate"


def main() -> int:
    """Run the chosen rows."""
    arguments = parse_arguments()
    rows = choose(read_rows(), arguments.only, quick=arguments.quick)
    out = arguments.out or Path(tempfile.mkdtemp(prefix="zoo-"))
    out.mkdir(parents=True, exist_ok=True)
    print(HEAD, flush=True)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, CORES // arguments.jobs)))
    for task in dict.fromkeys(row.task for row in rows):
        data(task, out)
    outcomes: list[Outcome] = []
    for started in (False, True):
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for outcome in pool.map(lambda row: run_row(row, out), [row for row in rows if bool(row.start) == started]):
                outcomes.append(outcome)
                print(line(outcome), flush=True)
                record(outcome, out / "results.json")
    missed = [outcome for outcome in outcomes if not outcome.reached]
    print(f"{len(outcomes) - len(missed)} of {len(outcomes)} reached their score; the runs are in {out}")
    return bool(missed)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only the rows of CI, which take minutes")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these rows")
    parser.add_argument("--jobs", type=int, default=CORES, metavar="N", help=f"rows to run at once (default: {CORES})")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="for data and runs; default: a temporary folder")
    return parser.parse_args()


def choose(rows: Sequence[Row], only: Sequence[str] | None, *, quick: bool) -> list[Row]:
    """Return the chosen rows, with those that they start from. Raises: SystemExit for a name that no row has."""
    unknown = {*(only or ())} - {row.name for row in rows}
    if unknown:
        raise SystemExit(f"no row {', '.join(sorted(unknown))}; the rows are {', '.join(row.name for row in rows)}")
    chosen = [row for row in rows if (not only or row.name in only) and (row.quick or not quick)]
    names = {name for row in chosen for name in (row.name, row.start)}
    return [row for row in rows if row.name in names]


def record(outcome: Outcome, path: Path) -> None:
    """Add the row to the file, replacing an older one of the same name."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    rows = {row["name"]: row for row in kept} | {outcome.row.name: as_json(outcome)}
    with atomic_write(path) as part:
        part.write_text(json.dumps(list(rows.values()), indent=2) + "\n", encoding="utf-8")


def line(outcome: Outcome) -> str:
    """Return the row as a line of the table."""
    row = outcome.row
    if outcome.mistake is not None:
        return f"{row.name:28} {'':10} {row.task:12} failed: {outcome.mistake}"
    scores = ", ".join(f"{name} {score:.3f}" for name, score in outcome.scores.items())
    needed = ", ".join(f"{bound:g}" for bound in row.needed.values())
    end = "passed" if outcome.certificate else "FAILED"
    return (
        f"{row.name:28} {outcome.parameters:10,} {row.task:12} {outcome.training_seconds:7.0f} s "
        f"{scores:36} {needed:>12} {end}{'' if row.reached(outcome.scores) else ', score MISSED'}"
    )


def as_json(outcome: Outcome) -> dict[str, object]:
    """Return the row as JSON."""
    row = outcome.row
    return {
        "name": row.name,
        "task": row.task,
        "parameters": outcome.parameters,
        "training_seconds": outcome.training_seconds,
        "scores": dict(outcome.scores),
        "needed": dict(row.needed),
        "certificate": outcome.certificate,
        "reached": outcome.reached,
        "mistake": outcome.mistake,
    }


if __name__ == "__main__":
    sys.exit(main())
