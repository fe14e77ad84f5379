"""The shipped specs of constituency parsing have the settings of the paper's section 6.3."""

import pytest

from xformc.compiler import compile_spec
from xformc.compiler.ops.fused_attention import Attention
from xformc.compiler.spec import load_spec
from xformc.specs import SHIPPED


@pytest.mark.parametrize(("name", "pieces"), [("parsing", 16_000), ("parsing_semi_supervised", 32_000)])
def test_parsing_is_four_wide_layers_with_a_wide_beam(name: str, pieces: int) -> None:
    spec = load_spec(SHIPPED / f"{name}.yaml")
    assert (spec.sizes["layers"], spec.sizes["d_model"], spec.inputs["target"].axes[0].size) == (4, 1024, pieces)
    assert (spec.decode.beam_size, spec.decode.length_penalty) == (21, 0.3)
    assert (spec.decode.max_length.factor, spec.decode.max_length.offset) == (1, 300)
    attention = 4 * (1024 * 1024 + 1024) + 2 * 1024
    feed_forward = 2 * 1024 * 2048 + 1024 + 2048 + 2 * 1024
    assert compile_spec(spec).parameter_count() == 4 * (3 * attention + 2 * feed_forward) + pieces * 1024


def test_parsing_drops_attention_weights_too() -> None:
    def rates(name: str) -> list[float]:
        graph = compile_spec(load_spec(SHIPPED / f"{name}.yaml"))
        return [node.op.dropout for node in graph.nodes if isinstance(node.op, Attention)]

    assert set(rates("parsing")) == {0.1} and len(rates("parsing")) == 12
    assert set(rates("transformer_base")) == {0.0}
