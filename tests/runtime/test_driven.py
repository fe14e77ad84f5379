"""A driven search agrees with the whole model, caches its buffers, and rejects what it cannot do."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.fixed_engines import Engines, Requests, write_engines
from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.format.manifest import SampleOptions, SearchOptions
from xformc.format.names import NEXT, STEP
from xformc.format.plans import Profile
from xformc.runtime.devices.device import Buffer, Sizes
from xformc.runtime.devices.driven import KEPT
from xformc.runtime.devices.fixed_shapes import BeamShapes, filled, joined, parts_of, size_of
from xformc.runtime.devices.onnx import OnnxCall, OnnxDevice, OnnxModel
from xformc.runtime.generation.generate import Prompt, SampleResult, sample
from xformc.runtime.rows import pad
from xformc.runtime.searching.search import SearchResult, length_limit, search

TRANSLATIONS = ("transformer_base", "t5", "seq2seq_attention")
LANGUAGE_MODELS = ("gpt", "lstm_language_model")
OPTIONS = SearchOptions(3, 2, 0.6, 1.0, 5)
GREEDY = SampleOptions(0.0, 0, 1.0, 4)
WriteEngines = Callable[[str], Engines]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> WriteEngines:
    made: dict[str, Engines] = {}

    def of(name: str) -> Engines:
        if name not in made:
            made[name] = write_engines(name, tmp_path_factory.mktemp("engines"))
        return made[name]

    return of


class InPlace(OnnxDevice):
    """The processor, with the buffers of each model's calls."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "cpu", 1, in_place=True)
        self.bound = list[Mapping[str, Buffer]]()

    def models(self, sizes: Sizes) -> tuple[OnnxModel, OnnxModel]:
        prepare, step = super().models(sizes)
        call = step.call

        def recorded(buffers: Mapping[str, Buffer]) -> OnnxCall:
            self.bound.append(buffers)
            return call(buffers)

        step.call = recorded  # pyright: ignore[reportAttributeAccessIssue]
        return prepare, step


class Recorded(OnnxDevice):
    """The processor, with what it was asked for, and bounds as a plan has them."""

    def __init__(self, folder: Path, profile: Profile | None = None) -> None:
        super().__init__(folder, "cpu", 1)
        self.asked = list[Sizes]()
        self.profile = profile or {}

    def models(self, sizes: Sizes) -> tuple[OnnxModel, OnnxModel]:
        self.asked.append(sizes)
        return super().models(sizes)


def assert_alike(found: SearchResult | SampleResult, expected: SearchResult | SampleResult) -> None:
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_array_equal(found.lengths, expected.lengths)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", TRANSLATIONS)
def test_driven_beam_search_is_that_of_the_whole_model(name: str, engines: WriteEngines) -> None:
    made = engines(name)
    whole, driven = made.whole(), made.driven()
    for seed in range(6):
        requests = Requests(seed)
        source, options, end = requests.sources(), requests.search(), requests.end()
        assert_alike(search(driven, {"source": source}, options, end), search(whole, {"source": source}, options, end))


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_driven_sampling_is_that_of_the_whole_model(name: str, engines: WriteEngines) -> None:
    made = engines(name)
    whole, driven = made.whole(), made.driven()
    for seed in range(6):
        requests = Requests(seed)
        prompts, options, end = requests.prompts(), requests.sampling(), requests.end()
        assert_alike(sample(driven, prompts, options, end), sample(whole, prompts, options, end))


@pytest.mark.parametrize("name", ["transformer_base", "seq2seq_attention", "gpt"])
def test_caches_that_are_written_in_place_change_no_result(name: str, engines: WriteEngines) -> None:
    made = engines(name)
    device = InPlace(made.cuda)
    whole, driven = made.whole(), made.driven(device)
    for seed in range(3):
        requests = Requests(seed)
        if name == "gpt":
            given = (requests.prompts(), requests.sampling(), requests.end())
            assert_alike(sample(driven, *given), sample(whole, *given))
        else:
            source, options, end = requests.sources(), requests.search(), requests.end()
            assert_alike(
                search(driven, {"source": source}, options, end), search(whole, {"source": source}, options, end)
            )
    for buffers in device.bound:
        states = [one for one in buffers if f"{one}{NEXT}" in buffers]
        shared = {one for one in states if buffers[one] is buffers[f"{one}{NEXT}"]}
        assert shared == {one for one in states if one.startswith("cache_")} and len(shared) < len(states)
    assert device.bound and any(one.startswith("cache_") for one in device.bound[0]) == (name != "seq2seq_attention")


def test_driven_search_is_kept_for_sizes_that_recur(engines: WriteEngines) -> None:
    made = engines("transformer_base")
    device = Recorded(made.cuda)
    driven = made.driven(device)
    for length in (3, 7, 12):
        search(driven, {"source": np.full((2, length), 5, np.int64)}, OPTIONS)
    assert device.asked == [{"batch": 2, "source": 16, "beam": 3, "room": 32}]
    for rows in range(3, 3 + KEPT):
        search(driven, {"source": np.full((rows, 3), 5, np.int64)}, OPTIONS)
    again = len(device.asked)
    search(driven, {"source": np.full((2, 3), 5, np.int64)}, OPTIONS)
    assert len(device.asked) == again + (len({tuple(sizes.items()) for sizes in device.asked}) > KEPT)


def test_driven_search_runs_as_many_rows_at_once_as_its_plans_have(engines: WriteEngines) -> None:
    made, requests = engines("transformer_base"), Requests(1)
    device = Recorded(made.cuda, {"batch": (1, 2, 2), "source": (4, 24, 24), "beam": (1, 4, 4), "room": (8, 40, 40)})
    source = pad([requests.ids(1, 15) for _ in range(5)])
    found, expected = (
        search(made.driven(device), {"source": source}, OPTIONS),
        search(made.whole(), {"source": source}, OPTIONS),
    )
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    assert [sizes["batch"] for sizes in device.asked] == [2, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SearchOptions(5, 1, 0.6, 1.0, 5), "this call needs a beam_size of 5, but the engine's plans were built for 4"),
        (SearchOptions(1, 1, 0.6, 1.0, 5), "this call needs a beam_size of 1, but the engine's plans were built for 4"),
        (
            SearchOptions(4, 1, 0.6, 1.0, 40),
            "this call needs a capacity of 45 tokens, but the engine's plans were built for 1 to 40",
        ),
    ],
)
def test_driven_search_refuses_what_its_plans_were_not_built_for(
    options: SearchOptions, message: str, engines: WriteEngines
) -> None:
    made = engines("transformer_base")
    device = Recorded(made.cuda, {"beam": (4, 4, 4), "room": (1, 40, 40)})
    with pytest.raises(UserError, match="built for") as raised:
        search(made.driven(device), {"source": np.full((1, 5), 5, np.int64)}, options)
    assert raised.value.message == message
    assert "--profile" in (raised.value.hint or "")


def test_results_stay_when_the_next_search_of_their_sizes_is_run(engines: WriteEngines) -> None:
    driven = engines("transformer_base").driven()
    first = search(driven, {"source": np.array([[5, 6, 7, 3]])}, OPTIONS)
    before = first.tokens.copy()
    other = search(driven, {"source": np.array([[12, 9, 3, 0]])}, OPTIONS)
    assert not np.array_equal(other.scores, first.scores)
    np.testing.assert_array_equal(first.tokens, before)


def test_driven_search_ends_when_it_is_stopped(engines: WriteEngines) -> None:
    session = engines("transformer_base").driven().stoppable()
    session.stop()
    with pytest.raises(UserError, match="the search was stopped"):
        search(session, {"source": np.full((1, 5), 5, np.int64)}, OPTIONS)


def test_driven_search_stops_at_the_positions_of_the_model(engines: WriteEngines) -> None:
    made = engines("gpt")
    longest = made.program.inputs["text"].longest
    assert longest is not None
    prompts = [Prompt([5] * (longest - 2), 1), Prompt([], 2)]
    found = sample(made.driven(), prompts, SampleOptions(0.0, 0, 1.0, 1000), end=(-1,))
    assert found.lengths.tolist() == [2, longest]


def test_the_limit_of_an_output_is_taken_in_float32_as_in_an_engine() -> None:
    options = SearchOptions(1, 1, 0.6, 0.7, 0)
    assert int(0.7 * 90) == 62 and length_limit(options, 90) == 63
    feeds = {name: np.array(value) for name, value in asdict(options).items()}
    inputs, _ = BeamShapes(None, {"source": Input("tokens", vocabulary=9)}, {}).padded(
        {"source": np.ones((1, 90), np.int64), **feeds}, {"room": (1, 63, 63)}
    )
    assert len(inputs["places"]) == 63


def test_driven_search_refuses_models_that_do_not_fit_each_other(engines: WriteEngines, tmp_path: Path) -> None:
    translation, model = engines("transformer_base").cuda, engines("gpt").cuda
    for folder, names in ((translation, [STEP]), (model, ["prepare.onnx"])):
        for path in folder.iterdir():
            if path.name in names or path.suffix == ".data":
                (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(UserError, match="the models of the search do not fit each other"):
        OnnxDevice(tmp_path, "cpu", 1).models({})


def test_sizes_of_batches_are_few_and_less_than_a_quarter_above_the_need() -> None:
    sizes = [size_of("batch", needed, None) for needed in range(1, 1025)]
    assert all(needed <= size < 1.25 * needed for needed, size in enumerate(sizes, start=1))
    assert len(set(sizes)) == 36


def test_sizes_keep_to_what_is_allowed() -> None:
    assert size_of("room", 33, None) == 64
    assert size_of("room", 33, (1, 8, 50)) == 50
    assert size_of("room", 3, (40, 40, 40)) == 40
    assert size_of("beam", 3, (1, 4, 4)) == 3


def test_filled_rows_repeat_the_last_one_and_columns_are_padded() -> None:
    result = filled(np.array([[1, 2], [3, 0]]), (4, 3))
    assert result.tolist() == [[1, 2, 0], [3, 0, 0], [3, 0, 0], [3, 0, 0]]


def test_parts_are_joined_to_the_whole() -> None:
    feeds = {"width": np.array(2), "source": np.arange(10).reshape(5, 2)}
    parts = list(parts_of(feeds, {"batch": (1, 2, 2)}))
    assert [len(part["source"]) for part in parts] == [2, 2, 1]
    tokens, lengths = joined([[np.ones((2, 1, 3)), np.zeros(2)], [np.ones((1, 1, 5)), np.zeros(1)]])
    assert tokens.shape == (3, 1, 5)
    assert tokens.sum() == 11
    assert lengths.shape == (3,)
