"""Time and memory of a decoding step by output length, with full, windowed and linear attention.

python -m benchmarks.step_growth [--longest 4096] [--out docs/images/step_growth.png]

The benchmark times the derived step of the same language model with each attention, in ONNX Runtime, with randomly
initialized weights and one text. The models take turns at each length; times are medians.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any, cast

from matplotlib.figure import Figure

from xformc.compiler.explain.cost.measured import lengths_up_to, measure_step
from xformc.compiler.spec import Spec, load_spec

SIZES = "{layers: 6, d_model: 256, d_ff: 1024, heads: 4, vocabulary: 1000, max_positions: %d%s}"
FORMS = {
    "full": "extends: gpt\nsizes: {sizes}\n",
    "window of 128": "extends: gpt\nsizes: {windowed}\nchoices: {{reach: window}}\n",
    "linear": "extends: linear_attention\nsizes: {sizes}\n",
}
COLOURS = ("#0072b2", "#d55e00", "#009e73")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--longest", type=int, default=4096)
    parser.add_argument("--out", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    found = {name: dict[int, tuple[float, float]]() for name in FORMS}
    print(f"{'tokens':>7}" + "".join(f"{name:>16} ms {'states':>10}" for name in FORMS))
    for length in lengths_up_to(arguments.longest)[1:]:
        row = f"{length:7,}"
        for name, text in FORMS.items():
            seconds, held = measure_step(model(text, arguments.longest), length)
            found[name][length] = 1000 * seconds, held / 2**20
            row += f"{1000 * seconds:16.2f} ms {held / 2**20:6.2f} MiB"
        print(row, flush=True)
    if arguments.out is not None:
        draw(found, arguments.out)


def model(text: str, longest: int) -> Spec:
    """Return the spec with this text, with positions for `longest` tokens."""
    sizes = {"sizes": SIZES % (longest, ""), "windowed": SIZES % (longest, ", window: 128")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.yaml"
        path.write_text(text.format(**sizes) + f"train: {{max_length: {longest}}}\n")
        return load_spec(path)


def draw(found: dict[str, dict[int, tuple[float, float]]], path: Path) -> None:
    """Draw time on the left and memory on the right."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    for index, title in enumerate(("milliseconds per step", "MiB of state")):
        axes = cast(Any, figure).add_subplot(1, 2, index + 1)
        for (name, points), colour in zip(found.items(), COLOURS, strict=True):
            values = [point[index] for point in points.values()]
            axes.plot([*points], values, marker="o", markersize=4, color=colour, label=name)
        axes.set_xlabel("output tokens so far")
        axes.set_title(title, fontsize=10)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, color="#dddddd", linewidth=0.6)
        axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
