"""Tasks that a small model learns in a few seconds: a spec of each, and its data."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from xformc.compiler.spec import Spec, load_spec

RECIPE = """
train:
  label_smoothing: 0.0
  schedule: {warmup_steps: 20, scale: 1.0, decay: linear}
  batch_tokens: 400
  steps: 120
  checkpoint: {every_steps: 60, every_minutes: null}
  average: 1
"""
SMALL = "layers: 1, d_model: 16, d_ff: 32, heads: 2, dropout: 0.0"
SPECS = {
    "classification": f"extends: text_classifier\nsizes: {{{SMALL}, vocabulary: 40}}\n"
    + RECIPE
    + "  tokenizer: {kind: word}\n",
    "tagging": "extends: bilstm_tagger\nsizes: {d_model: 16, vocabulary: 40, labels: 2, dropout: 0.0}\n"
    + RECIPE
    + "  tokenizer: {kind: word}\n",
    "language_model": f"extends: gpt\nsizes: {{{SMALL}, vocabulary: 40, max_positions: 20}}\n"
    + RECIPE
    + "  max_length: 20\n  tokenizer: {kind: char}\n",
    "images": """\
task: classification
sizes: {d_model: 16, height: 4, width: 3, channels: 1, labels: 2}
inputs: {image: {values: [height, width, channels]}}
model:
  hidden: {from: image, do: [linear: {over: [height, width, channels], to: d_model}, relu]}
  label: {from: hidden, do: [linear: labels]}
"""
    + RECIPE,
    "graphs": """\
task: tagging
sizes: {d_model: 16, d_k: 16, features: 2, labels: 2}
inputs: {nodes: {vectors: features}, edges: {edges: nodes}}
model:
  label:
    from: nodes
    do:
      own: {linear: d_model}
      query: {linear: d_k}
      key: {linear: {from: own, to: d_k}}
      keys: {as_keys: {from: key}}
      values: {as_keys: {from: own}}
      scores: {contract: {from: query, by: keys, over: d_k}}
      seen: {mask: {edges: edges}}
      weights: {softmax: keys}
      mixed: {contract: {by: values, over: keys}}
      output: {linear: labels}
"""
    + RECIPE,
}


def draw_classification(random: np.random.Generator, count: int) -> list[str]:
    """yes if the text has the word `one`."""
    texts = [random.choice(["one", "two", "three", "four"], random.integers(1, 6)) for _ in range(count)]
    return [f"{' '.join(words)}\t{'yes' if 'one' in words else 'no'}" for words in texts]


def draw_tagging(random: np.random.Generator, count: int) -> list[str]:
    """A word is `even` if its number is."""
    texts = [random.integers(0, 9, random.integers(1, 6)) for _ in range(count)]
    return [f"{' '.join(f'w{n}' for n in ns)}\t{' '.join('odd' if n % 2 else 'even' for n in ns)}" for ns in texts]


def draw_language_model(random: np.random.Generator, count: int) -> list[str]:
    """One letter, again and again."""
    return [str(random.choice(list("abcd"))) * int(random.integers(3, 30)) for _ in range(count)]


def draw_images(random: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Bright or dark."""
    labels = random.integers(0, 2, count)
    return {"image": random.normal(size=(count, 4, 3, 1)) / 4 + labels[:, None, None, None], "labels": labels}


def draw_graphs(random: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """A node has the label of its only neighbour's first feature."""
    nodes = random.integers(0, 2, (count, 4, 2)).astype(np.float32)
    neighbour = random.integers(0, 4, (count, 4))
    edges = neighbour[:, :, None] == np.arange(4)
    labels = np.array(["no", "yes"])[np.take_along_axis(nodes[:, :, 0], neighbour, 1).astype(int)]
    return {"nodes": nodes, "nodes_lengths": np.full(count, 4), "edges": edges, "labels": labels}


DATA: dict[str, tuple[str, Callable[..., list[str] | dict[str, np.ndarray]]]] = {
    "classification": ("tsv", draw_classification),
    "tagging": ("tsv", draw_tagging),
    "language_model": ("txt", draw_language_model),
    "images": ("npz", draw_images),
    "graphs": ("npz", draw_graphs),
}


def write_data(folder: Path, name: str) -> Path:
    suffix, draw = DATA[name]
    random = np.random.default_rng(0)
    for split, count in (("train", 200), ("valid", 40)):
        drawn, path = draw(random, count), folder / f"{split}.{suffix}"
        if isinstance(drawn, dict):
            arrays: dict[str, Any] = drawn  # numpy's types would have the parameter allow_pickle be an array
            np.savez(path, **arrays)
        else:
            path.write_text("".join(f"{line}\n" for line in drawn), encoding="utf-8")
    return folder


def write_spec(folder: Path, name: str, precision: str = "auto") -> Spec:
    (folder / f"{name}.yaml").write_text(f"{SPECS[name]}  precision: {precision}\n", encoding="utf-8")
    return load_spec(folder / f"{name}.yaml")
