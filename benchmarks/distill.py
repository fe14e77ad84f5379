"""Distillation: a small student trained on references, and the same student trained on its teacher's translations.

    python -m benchmarks.distill --data DIR [--languages en-de] [--steps 3000 4000] [--set KEY=VALUE] --folder DIR

DIR has train.*, valid.* and test_2016_flickr.* of Multi30k, tokenised and lower-cased. The teacher is
specs/multi30k.yaml; the students have 1+1 layers of d_model 64, dropout 0.1 on references and none on the teacher's
translations. Each step is a command of xformc; one that is done is not repeated, so that the whole may be stopped and
started again, and a run that stands in DIR/teacher is the teacher. Scores are of the test set; sentences per second
are of `xformc translate` on it, its start included.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

SPEC = Path(__file__).parent.parent / "specs" / "multi30k.yaml"
TEST = "test_2016_flickr"
PEAK = 0.002
ADAM = ("train.batch_tokens=4096", "train.optimizer={adam: {beta2: 0.98, epsilon: 1.0e-9}}")
"""What benchmarks that compare trainings keep, in place of the spec's recipe."""

SMALL = ["sizes.layers=1", "sizes.d_model=64", "sizes.d_ff=256", "sizes.heads=2"]


def main() -> None:
    arguments = parse_arguments()
    source, target = arguments.languages.split("-")
    folder, data = arguments.folder, ["--data", str(arguments.data), "--languages", arguments.languages]
    texts = ["--valid", str(arguments.data), "--languages", arguments.languages]
    long, short = (settings([*recipe(steps), *arguments.set]) for steps in arguments.steps)
    train(folder / "teacher", [str(SPEC), *data, *long])
    mono = find(arguments.data, "train", source)
    once(folder / "distilled", ["distill", str(folder / "teacher-engine"), str(mono), *texts, "--beam-size", "4"])
    small = [str(SPEC), *settings(SMALL), *short]
    train(folder / "references", [*small, *settings(["sizes.dropout=0.1"]), *data])
    train(folder / "student", [*small, *settings(["sizes.dropout=0"]), "--data", str(folder / "distilled")])
    test = [find(arguments.data, TEST, language) for language in (source, target)]
    print(f"{'model':12} {'parameters':>12} {'BLEU':>7} {'chrF':>7} {'sentences/s':>12}")
    for name in ("teacher", "references", "student"):
        engine = folder / f"{name}-engine"
        scores = json.loads(run(["evaluate", str(engine), *map(str, test), "--json"]))
        count = json.loads((engine / "engine.json").read_text())["parameters"]
        speed = max(sentences_per_second(engine, test[0]) for _ in range(3))
        print(f"{name:12} {count:12,} {scores['bleu']['score']:7.2f} {scores['chrf']['score']:7.2f} {speed:12.1f}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="Multi30k")
    parser.add_argument("--languages", default="en-de", help="source-target")
    parser.add_argument("--steps", type=int, nargs=2, default=[3000, 4000], help="of the teacher, of each student")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of all trainings")
    parser.add_argument("--folder", type=Path, required=True, help="where runs and engines are written")
    return parser.parse_args()


def recipe(steps: int, peak: float = PEAK) -> list[str]:
    """Settings of a training of so many steps, of which a quarter warms up; weights are averaged over about a tenth."""
    schedule = f"train.schedule={{kind: cosine, peak: {peak}, warmup_steps: {steps // 4}}}"
    return [f"train.steps={steps}", "train.minutes=null", schedule, f"train.ema={1 - 10 / steps:.4f}", *ADAM]


def settings(values: list[str]) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def train(out: Path, command: list[str]) -> None:
    """Train a run, or continue it, and build its engine beside it."""
    if not (out / "weights.safetensors").exists():
        run(["train", *command, "-o", str(out), "--resume"])
    once(out.with_name(f"{out.name}-engine"), ["build", str(out)])


def once(out: Path, command: list[str]) -> None:
    """Run a command, unless its output is there; one that was stopped goes on."""
    if not out.exists() or (out / ".prepare.lock").exists():
        run([*command, "-o", str(out), *(["--resume"] if out.exists() else [])])


def run(command: list[str]) -> str:
    print("xformc", *command, file=sys.stderr)
    return subprocess.run(
        [sys.executable, "-m", "xformc", *command], check=True, stdout=subprocess.PIPE
    ).stdout.decode()


def find(folder: Path, split: str, language: str) -> Path:
    return next(
        path for path in sorted(folder.glob(f"{split}*")) if path.name.endswith((f".{language}", f".{language}.gz"))
    )


def sentences_per_second(engine: Path, source: Path) -> float:
    began = time.perf_counter()
    lines = run(["translate", str(engine), "-i", str(source), "--quiet"]).count("\n")
    return lines / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
