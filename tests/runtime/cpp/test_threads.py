"""One engine of libxformc in many threads, with ONNX Runtime itself, and one whose folder is replaced meanwhile."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tiny_engine import SENTENCES

from tests.conformance.engines import FOLDER
from tests.runtime.kernel_session import kernel_library
from xformc.errors import UserError
from xformc.runtime.libxformc import CppEngine

THREADS, CALLS = 16, 20


def test_threads_share_one_engine_and_each_gets_its_own_results() -> None:
    kernel_library()
    engine = CppEngine(FOLDER / "copy")

    def run(number: int) -> bool:
        text, options = SENTENCES[number % len(SENTENCES)], {"n_best": 1 + number % 4, "workers": 1 + number % 2}
        found = [engine.translate([text], **options) for _ in range(CALLS)]
        return all([one.text for one in row] == [text] * (1 + number % 4) for [row] in found)

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(run, range(4 * THREADS)))
    engine.close()


def test_an_engine_that_was_replaced_is_not_mixed_with_the_loaded_one(own_engine: Path, endless_engine: Path) -> None:
    """More workers take another model of the engine, which is opened then."""
    kernel_library()
    engine = CppEngine(own_engine, threads=2)
    shutil.copytree(endless_engine, own_engine, dirs_exist_ok=True)
    [[same]] = engine.translate(["hello world"])
    assert same.text == "hello world"
    with pytest.raises(UserError, match="the engine in this folder has changed since it was loaded") as caught:
        engine.translate(["hello world"], workers=2)
    assert (caught.value.place, caught.value.hint) == (str(own_engine), "load it again with xformc_load")
    engine.close()


def test_an_engine_stays_the_one_to_which_a_link_led(own_engine: Path, endless_engine: Path, tmp_path: Path) -> None:
    kernel_library()
    (tmp_path / "current").symlink_to(own_engine)
    engine = CppEngine(tmp_path / "current", threads=2)
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to(endless_engine)
    [[same]] = engine.translate(["hello world"], workers=2)
    assert same.text == "hello world"
    engine.close()
