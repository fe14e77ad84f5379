"""One engine of libxformc in many threads, with ONNX Runtime itself."""

from concurrent.futures import ThreadPoolExecutor

from tiny_engine import SENTENCES

from tests.conformance.engines import FOLDER
from tests.runtime.kernel_session import kernel_library
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
