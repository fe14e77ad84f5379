"""Texts with timestamps are those of transformers, and long sounds are read from the last one on."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.imports.test_sounds import FRAMES, HOP, save_whisper
from tests.runtime.kernel_session import kernel_library
from xformc.api import build
from xformc.format.interfaces import PREFIX, START, TIMED
from xformc.format.targets import TargetWord
from xformc.imports.examples import features
from xformc.imports.import_model import import_model
from xformc.runtime.constraints.automaton import timed_matching
from xformc.runtime.engine import Engine, load
from xformc.runtime.searching.translate import search_rows

transformers: Any = pytest.importorskip("transformers")

END, SILENT, FIRST, LATEST = 50, 58, 59, 5
TARGETS: tuple[TargetWord, ...] = ("portable", "native")
SPOKEN: dict[str, Any] = {
    "lang_to_id": {"<|en|>": 52, "<|de|>": 53},
    "task_to_id": {"transcribe": 54, "translate": 55},
    "no_timestamps_token_id": SILENT,
    "max_initial_timestamp_index": LATEST,
    "suppress_tokens": [7, 51, 52, 53, 54, 55, 56, 57],
    "begin_suppress_tokens": [END, *range(0, 50, 2), FIRST + 1],
}


@dataclass(frozen=True)
class Model:
    """The random model of transformers, and engines of it."""

    origin: Any
    engines: dict[str, Engine]
    folder: Path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Skips without kernels."""
    kernel_library()
    folder = tmp_path_factory.mktemp("whisper")
    origin = save_whisper(folder / "model", vocab_size=FIRST + 21)
    said = json.loads((folder / "model" / "generation_config.json").read_text())
    (folder / "model" / "generation_config.json").write_text(json.dumps({**said, **SPOKEN}))
    import_model(folder / "model", folder / "run")
    engines: dict[str, Engine] = {}
    for target in TARGETS:
        certificate = build(folder / "run", folder / target, target=target)
        (stage,) = (stage for stage in certificate.stages if stage.name == "controls")
        assert stage.passed and "constraints, timestamps and groups" in stage.what
        engines[target] = load(folder / target, threads=1)
    return Model(origin, engines, folder)


def sounds(seed: int, lengths: Sequence[int]) -> list[Any]:
    draw = np.random.default_rng(seed)
    return [draw.normal(0, 10 ** draw.uniform(-2, 0), length * HOP).astype(np.float32) for length in lengths]


def their_tokens(origin: Any, several: Sequence[Any], prefix: Sequence[int], beams: int) -> list[list[int]]:
    """What transformers' search writes with its own rules of timestamps, up to the end token."""
    extract = features(8, FRAMES * HOP, 16000, HOP, 400)
    given = extract(list(several), sampling_rate=16000, return_tensors="pt").input_features
    settings = transformers.GenerationConfig(
        **{name: SPOKEN[name] for name in ("no_timestamps_token_id", "max_initial_timestamp_index")},
        eos_token_id=END, bos_token_id=END,
    )  # fmt: skip
    begin = 1 + len(prefix)
    kinds = transformers.generation.logits_process
    rules = transformers.LogitsProcessorList(
        [
            kinds.SuppressTokensAtBeginLogitsProcessor(SPOKEN["begin_suppress_tokens"], begin),
            kinds.SuppressTokensLogitsProcessor(SPOKEN["suppress_tokens"]),
            kinds.WhisperTimeStampLogitsProcessor(settings, begin_index=begin),
        ]
    )
    plain = transformers.GenerationConfig(
        eos_token_id=END, pad_token_id=END, decoder_start_token_id=51, num_beams=beams, max_new_tokens=14,
        do_sample=False,
    )  # fmt: skip
    generate = transformers.GenerationMixin.generate
    begun = torch.tensor([[51, *prefix]] * len(several))
    found = generate(
        origin, input_features=given, decoder_input_ids=begun, generation_config=plain, logits_processor=rules
    )
    texts = [own[begin:] for own in found.tolist()]
    return [own[: own.index(END) + 1 if END in own else None] for own in texts]


@pytest.mark.processor
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", TARGETS)
def test_texts_with_timestamps_are_those_of_transformers(model: Model, target: str) -> None:
    engine, several, seen = model.engines[target], sounds(0, [3, 17, FRAMES, FRAMES, 30, 8]), set[int]()
    for language, task, beams in (("en", "transcribe", 1), ("de", "translate", 1), ("de", "transcribe", 3)):
        prefix = [SPOKEN["lang_to_id"][f"<|{language}|>"], SPOKEN["task_to_id"][task]]
        found = our_tokens(engine, several, prefix, beams)
        assert found == their_tokens(model.origin, several, prefix, beams), (language, task, beams)
        seen.update(token for tokens in found for token in tokens)
    times = {token for token in seen if token >= FIRST}
    assert len(times) > 4 and len(seen - times) > 4


def our_tokens(engine: Engine, several: Sequence[Any], prefix: Sequence[int], beams: int) -> list[list[int]]:
    manifest = engine.manifest
    rows = [{"wave": one.reshape(-1, HOP), PREFIX: np.array(prefix), START: np.array(TIMED)} for one in several]
    options = replace(
        manifest.search, beam_size=beams, n_best=1, max_length_factor=0.0, max_length_offset=14 + len(prefix)
    )
    matching = timed_matching(manifest.inputs[manifest.written])
    found = search_rows(engine.session, rows, manifest, options, constraint=matching)
    return [list(found.text(row, 0))[len(prefix) :] for row in range(len(several))]


@pytest.mark.parametrize("target", TARGETS)
def test_a_long_sound_has_segments_in_order(model: Model, target: str) -> None:
    engine, (sound,) = model.engines[target], sounds(1, [FRAMES * 3])
    given = {"wave": sound.reshape(1, -1, HOP), "wave_lengths": np.array([FRAMES * 3])}
    [[found]] = engine.transcribe(given, language="de", timestamps=True)
    assert found.parts and any(token >= FIRST for token in found.tokens)
    assert all(one.start <= one.end <= FRAMES * 3 * HOP / 16000 for one in found.parts)
    starts = [one.start for one in found.parts]
    assert starts == sorted(starts) and starts[-1] >= FRAMES * HOP / 16000, (
        "later parts of the sound have segments, too"
    )
