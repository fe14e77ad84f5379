"""Small specs to start from, one for each task."""

from collections.abc import Mapping
from pathlib import Path

from xformc.errors import UserError
from xformc.files import atomic_write

HEAD = """\
# yaml-language-server: $schema={schema}
# {what} What is not written here is as in the shipped spec `{base}`.
extends: {base}
"""
SIZES = """
sizes:                    # named numbers, or arithmetic on others
  layers: 4
  d_model: 256            # the width of the vectors
  d_ff: 4 * d_model       # the width between the two layers of a feed-forward network
  heads: 4                # of attention, each of d_model / heads numbers
"""
CHOICES = """
choices:                  # words; `xformc report` shows what each costs
  norm: pre               # before each sublayer; post: after it
"""

STARTERS: Mapping[str, str] = {
    "translation": HEAD.replace("{base}", "transformer_base").replace("{what}", "A small Transformer that translates.")
    + SIZES
    + """\
  vocabulary: 8000        # of both languages
  dropout: 0.1
"""
    + CHOICES
    + """\
  positions: rotary       # or sinusoidal, learned, relative, alibi, none

train:                    # data: a folder with train.tsv; source, tab, target
  batch_tokens: 4096
  steps: 20000
  schedule: {warmup_steps: 1000}

decode: {beam_size: 4}
""",
    "language_model": HEAD.replace("{base}", "gpt").replace("{what}", "A small GPT that continues texts.")
    + SIZES
    + """\
  vocabulary: 8000
  max_positions: 256      # tokens of the longest text
  dropout: 0.1
"""
    + CHOICES
    + """
train:                    # data: a folder with train.txt; a text on each line
  max_length: 256
  batch_tokens: 4096
  steps: 20000
  schedule: {warmup_steps: 1000}

decode: {sample: {temperature: 0.8, max_new_tokens: 100}}
""",
    "tagging": HEAD.replace("{base}", "bert").replace("{what}", "A small encoder that labels each word.")
    + SIZES
    + """\
  vocabulary: 8000        # words
  max_positions: 128      # words of the longest text
  labels: 10              # different labels
  dropout: 0.1
"""
    + CHOICES
    + """
train:                    # data: a folder with train.tsv; words, tab, a label for each word
  max_length: 128
  batch_tokens: 4096
  steps: 5000
  schedule: {warmup_steps: 500}
""",
    "classification": HEAD.replace("{base}", "text_classifier").replace("{what}", "A small encoder that labels texts.")
    + SIZES
    + """\
  vocabulary: 8000
  labels: 2               # different labels
  dropout: 0.1
"""
    + CHOICES
    + """\
  positions: sinusoidal   # or rotary, relative, alibi, none

train:                    # data: a folder with train.tsv; text, tab, label
  batch_tokens: 4096
  steps: 5000
  schedule: {warmup_steps: 500}
""",
}
SCHEMA = "schema.json"


def write_starter(task: str, path: Path, schema: str) -> tuple[Path, Path]:
    """Write the spec of a task of STARTERS, and the JSON schema beside it. Raises: UserError if the spec exists."""
    if path.exists():
        raise UserError("the file exists already", place=str(path), hint="choose another name with --output")
    beside = path.with_name(SCHEMA)
    for file, text in ((beside, schema), (path, STARTERS[task].replace("{schema}", SCHEMA))):
        with atomic_write(file) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return path, beside
