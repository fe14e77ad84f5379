"""Runs other systems' beam search of a T5, each in its own process (see child.py).

Only the standard library is imported at the top: OpenVINO has a Python of its own, without xformc.
"""

import io
import time
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from importlib.metadata import version
from typing import Any

from benchmarks.decode.child import answer_requests

FLOAT = 1
"""onnx.TensorProto.FLOAT."""


class Peers:
    """The most recently loaded model."""

    def __init__(self) -> None:
        self._model: Any = None

    def convert_onnxruntime(self, folder: str, out: str, precision: str) -> dict[str, Any]:
        """Write the model `out`, whose one node is BeamSearch, with onnxruntime's own scripts."""
        with quiet():
            scripts = import_module("onnxruntime.transformers.convert_generation")
            given = scripts.parse_arguments(["--model_name_or_path", folder, "--model_type", "t5", "--output", out])
            scripts.convert_generation_model(given)
            if precision == "int8":  # the scripts have no int8: quantize what they export, and put it together again
                given.encoder_decoder_init_onnx = quantized(given.encoder_decoder_init_onnx)
                given.decoder_onnx = quantized(given.decoder_onnx)
                scripts.convert_generation_model(given)
        return {}

    def load_onnxruntime(self, model: str, threads: int) -> dict[str, Any]:
        """Load a model that `convert_onnxruntime` wrote; return the version of onnxruntime."""
        onnxruntime = import_module("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._model = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return {"version": version("onnxruntime")}

    def search_onnxruntime(self, source: list[list[int]], beam: int, length: int) -> dict[str, Any]:
        """Write `length` tokens for each sentence; return the seconds and the best hypotheses."""
        numpy = import_module("numpy")
        begun = length + 1
        numbers = {"max_length": begun, "min_length": begun, "num_beams": beam, "num_return_sequences": 1}
        feeds = {name: numpy.array([number], numpy.int32) for name, number in numbers.items()}
        feeds |= {name: numpy.ones(1, numpy.float32) for name in ("length_penalty", "repetition_penalty")}
        began = time.perf_counter()
        (found,) = self._model.run(["sequences"], {"input_ids": numpy.array(source, numpy.int32), **feeds})
        return {"seconds": time.perf_counter() - began, "tokens": found[:, 0, 1:].tolist()}

    def load_openvino(self, folder: str, precision: str, threads: int) -> dict[str, Any]:
        """Convert a folder of transformers with optimum-intel, and load it; return the version of OpenVINO."""
        settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        with quiet():
            kind = import_module("optimum.intel").OVModelForSeq2SeqLM
            eight = precision == "int8"
            self._model = kind.from_pretrained(folder, export=True, load_in_8bit=eight, ov_config=settings)
        import_module("torch").set_num_threads(threads)
        return {"version": version("openvino")}

    def load_transformers(self, folder: str, threads: int) -> dict[str, Any]:
        """Load a folder of transformers in float32; return the version of transformers."""
        torch: Any = import_module("torch")
        transformers = import_module("transformers")
        with quiet():
            self._model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
        torch.set_num_threads(threads)
        return {"version": version("transformers")}

    def generate(self, source: list[list[int]], beam: int, length: int) -> dict[str, Any]:
        """The same as `search_onnxruntime`, with the `generate` of transformers or optimum-intel."""
        torch: Any = import_module("torch")
        given = torch.tensor(source)
        options = {"num_beams": beam, "do_sample": False, "min_new_tokens": length, "max_new_tokens": length}
        began = time.perf_counter()
        with torch.inference_mode():
            found = self._model.generate(given, attention_mask=torch.ones_like(given), **options)
        return {"seconds": time.perf_counter() - began, "tokens": found[:, 1:].tolist()}


def quantized(path: str) -> str:
    """Write a model in int8 beside one in float32, its activations quantized as they come; return the path."""
    out = path.replace("_fp32.onnx", "_int8.onnx")
    import_module("onnxruntime.quantization").quantize_dynamic(
        path, out, op_types_to_quantize=["MatMul"], per_channel=True, extra_options={"DefaultTensorType": FLOAT}
    )
    return out


@contextmanager
def quiet() -> Generator[None]:
    """Keep what a conversion prints out of the answers and the table."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield


if __name__ == "__main__":
    peers = Peers()
    made = (peers.convert_onnxruntime, peers.load_onnxruntime, peers.search_onnxruntime)
    methods = (*made, peers.load_openvino, peers.load_transformers, peers.generate)
    answer_requests({method.__name__: method for method in methods})
