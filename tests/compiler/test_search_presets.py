"""The presets of the search against the libraries that they are named after, with the same weights."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.hugging_face import marian
from tests.compiler.conftest import random_sources
from xformc.compiler.backends.onnx.initializers import save_models
from xformc.compiler.backends.onnx.models import emit_engine
from xformc.compiler.certify.reference_search import search
from xformc.compiler.certify.subject import Subject
from xformc.format.manifest import SearchOptions
from xformc.format.search_options import PRESETS
from xformc.format.tokens import BEGIN, END, PAD, UNKNOWN
from xformc.runtime.rows import pad

LIMIT, WIDTH, ROUNDING = 20, 4, 1e-5
OURS: dict[Any, str] = {True: "first", False: "best", "never": "complete"}
"""The stop rule for each value of Hugging Face's `early_stopping`."""

Texts = list[list[tuple[int, ...]]]


def make_engine(subject: Subject) -> Subject:
    """With an end token that is like two frequent tokens, so that most hypotheses end by themselves."""
    with torch.no_grad():
        for name, parameter in subject.module.named_parameters():
            if name.endswith("embedding.weight"):
                parameter[END] = 0.6 * (parameter[31] + parameter[33])
    initializers = subject.initializers()
    save_models(emit_engine(subject.program, initializers), initializers, subject.engine)
    return subject


def options_of(preset: str, **changes: Any) -> SearchOptions:
    options = SearchOptions(WIDTH, WIDTH, 0.6, max_length_factor=0, max_length_offset=LIMIT)
    return replace(options, **{**PRESETS[preset], **changes})


def assert_same(subject: Subject, sources: list[np.ndarray], options: SearchOptions, theirs: Texts) -> None:
    """The engine finds the same texts, best first, wherever no choice of the search is within rounding."""
    found = subject.search({"source": pad(sources)}, options).texts()
    for row in (row for row in range(len(sources)) if found[row] != theirs[row]):
        source = sources[row]
        reference = search(subject.scorer({"source": source}), len(source), options)
        assert reference.margin < ROUNDING, f"{found[row]} is {theirs[row]}"
    assert sum(mine == other for mine, other in zip(found, theirs, strict=True)) == len(sources)
    assert sum(text[-1] == END for texts in found for text in texts) > len(sources)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("early_stopping", "length_penalty"), [(False, 1.0), (False, 0.0), (False, 2.0), (True, 1.0), ("never", 1.5)]
)
def test_huggingface_finds_the_same_hypotheses(
    make_subject: Callable[..., Subject], early_stopping: Any, length_penalty: float
) -> None:
    transformers: Any = pytest.importorskip("transformers")
    subject = make_engine(make_subject(3))
    model = marian(subject.program.spec, subject.module.arrays(), LIMIT + 1)
    model.generation_config = transformers.GenerationConfig(
        num_beams=WIDTH, num_return_sequences=WIDTH, length_penalty=length_penalty, early_stopping=early_stopping,
        do_sample=False, pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=BEGIN,
    )  # fmt: skip
    sources = random_sources(5, 64, 9)
    source = torch.tensor(pad(sources))
    with torch.inference_mode():
        rows = model.generate(source, attention_mask=(source != PAD).long(), max_new_tokens=LIMIT).tolist()
    theirs = [tuple(row[1 : row.index(END) + 1 if END in row else None]) for row in rows]
    options = options_of("huggingface", stop_rule=OURS[early_stopping], length_penalty=length_penalty)
    assert_same(subject, sources, options, [theirs[first : first + WIDTH] for first in range(0, len(theirs), WIDTH)])


@pytest.mark.filterwarnings("ignore")
def test_huggingface_finds_the_same_with_banned_and_penalised_tokens(make_subject: Callable[..., Subject]) -> None:
    transformers: Any = pytest.importorskip("transformers")
    subject = make_engine(make_subject(3))
    model = marian(subject.program.spec, subject.module.arrays(), LIMIT + 1)
    sources = random_sources(5, 32, 9)
    source = torch.tensor(pad(sources))
    bans: dict[str, Any] = {"suppress_tokens": [31], "bad_words_ids": [[8]]}
    penalties: dict[str, Any] = {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3}
    for theirs_of, ours in ((bans, {"suppress_tokens": (31, 8)}), (penalties, penalties)):
        model.generation_config = transformers.GenerationConfig(
            num_beams=WIDTH, num_return_sequences=WIDTH, length_penalty=1.0, do_sample=False, pad_token_id=PAD,
            eos_token_id=END, decoder_start_token_id=BEGIN, **theirs_of,
        )  # fmt: skip
        with torch.inference_mode():
            rows = model.generate(source, attention_mask=(source != PAD).long(), max_new_tokens=LIMIT).tolist()
        theirs = [tuple(row[1 : row.index(END) + 1 if END in row else None]) for row in rows]
        grouped = [theirs[first : first + WIDTH] for first in range(0, len(theirs), WIDTH)]
        assert_same(subject, sources, options_of("huggingface", **ours), grouped)


@pytest.mark.parametrize(("length_penalty", "patience"), [(1.0, 1.0), (0.6, 1.0), (1.0, 2.0)])
def test_ctranslate2_finds_the_same_hypotheses(
    make_subject: Callable[..., Subject], tmp_path: Path, length_penalty: float, patience: float
) -> None:
    ctranslate2: Any = pytest.importorskip("ctranslate2")
    from xformc.exports.ctranslate2 import export

    subject = make_engine(make_subject(3))
    export(subject.program.spec, subject.module.arrays(), tmp_path / "peer")
    sources = random_sources(5, 64, 9)
    given = [["</s>" if token == END else f"t{token}" for token in row] for row in sources]
    found = ctranslate2.Translator(str(tmp_path / "peer"), intra_threads=1).translate_batch(
        given, beam_size=WIDTH, num_hypotheses=WIDTH, length_penalty=length_penalty, patience=patience,
        min_decoding_length=0, max_decoding_length=LIMIT,
    )  # fmt: skip
    theirs = [[ids_of(one) for one in row.hypotheses] for row in found]
    options = options_of("ctranslate2", length_penalty=length_penalty, patience=patience)
    assert_same(subject, sources, options, theirs)


def ids_of(tokens: list[str]) -> tuple[int, ...]:
    """The ids of CTranslate2's tokens, and of the end token unless the text was cut."""
    special = {"<blank>": PAD, "<unk>": UNKNOWN, "<s>": BEGIN}
    ids = tuple(special[token] if token in special else int(token[1:]) for token in tokens)
    return ids if len(ids) == LIMIT else (*ids, END)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("groups", "penalty", "early_stopping"), [(2, 0.5, True), (4, 1.0, False), (2, 3.0, "never")])
def test_huggingface_finds_the_same_groups_of_hypotheses(
    make_subject: Callable[..., Subject], groups: int, penalty: float, early_stopping: Any
) -> None:
    """`pip install --target FOLDER 'transformers==4.56.2'`, then PYTHONPATH=FOLDER."""
    transformers: Any = pytest.importorskip("transformers")
    if not hasattr(transformers.GenerationMixin, "_group_beam_search"):
        pytest.skip(f"transformers {transformers.__version__} has no groups of beams; 4.56.2 has")
    subject = make_engine(make_subject(3))
    model = marian(subject.program.spec, subject.module.arrays(), LIMIT + 1)
    model.generation_config = transformers.GenerationConfig(
        num_beams=WIDTH, num_return_sequences=WIDTH, length_penalty=1.0, early_stopping=early_stopping,
        num_beam_groups=groups, diversity_penalty=penalty, do_sample=False, pad_token_id=PAD, eos_token_id=END,
        decoder_start_token_id=BEGIN,
    )  # fmt: skip
    sources = random_sources(5, 64, 9)
    source = torch.tensor(pad(sources))
    with torch.inference_mode():
        rows = model.generate(source, attention_mask=(source != PAD).long(), max_new_tokens=LIMIT).tolist()
    theirs = [tuple(row[1 : row.index(END) + 1 if END in row else None]) for row in rows]
    options = options_of("huggingface", stop_rule=OURS[early_stopping], beam_groups=groups, diversity_penalty=penalty)
    assert_same(subject, sources, options, [theirs[first : first + WIDTH] for first in range(0, len(theirs), WIDTH)])
