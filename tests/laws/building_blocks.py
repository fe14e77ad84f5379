"""The steps of random specs: each takes [batch, positions, d_model] and returns the same axes."""

from hypothesis import strategies as st
from laws.specs import Step, Steps, named

Strategy = st.SearchStrategy[Step]
HEADS = ["heads", "d_k"]


def body(**steps: Step) -> Step:
    """A step of steps with names."""
    return {"do": steps}


GATED: dict[str, Step] = {
    "new": {"linear": "d_model"},
    "gate": {"linear": {"from": "x", "to": "d_model"}},
    "open": "sigmoid",
    "less": {"scale": {"from": "hidden", "factor": -1}},
    "change": {"plus": {"by": "new"}},
    "part": {"times": {"by": "open"}},
    "hidden": {"plus": {"by": "hidden"}},
}
"""A minimal GRU, whose new state is linear in the old one."""


def _cell(states: dict[str, Step], **steps: Step) -> Step:
    return {"recurrence": {"state": states, "cell": body(**steps)}}


POINTWISE: list[Step] = [
    {"linear": "d_model"},
    "layer_norm",
    "rms_norm",
    "batch_norm",
    {"noise": 0.1},
    "stop_gradient",
    "mish",
    "hard_swish",
    {"soft_cap": 2},
    {"layer_norm": {"gain": False}},
    {"layer_norm": {"bias": False, "zero_centered": True}},
    {"rms_norm": {"zero_centered": True}},
    {"rms_norm": {"gain": False, "over": "d_model"}},
    body(
        parts={"split": {"axis": "d_model", "into": HEADS}},
        normal={"layer_norm": {"over": "heads"}},
        all={"rms_norm": {"over": HEADS}},
        whole={"merge": {"axes": HEADS, "to": "d_model"}},
    ),
    "relu",
    "gelu",
    "silu",
    "tanh",
    "sigmoid",
    "elu",
    {"gelu": {"approximate": "tanh"}},
    "softplus",
    "relu6",
    "hard_sigmoid",
    "erf",
    "abs",
    "sin",
    "cos",
    {"scale": -0.5},
    {"shift": 0.25},
    {"times": 0.5},
    {"plus": "1 / heads"},
    {"minus": 0.25},
    {"divide": 2},
    {"minimum": 0.5},
    {"maximum": -0.5},
    body(square="square", more={"plus": 0.5}, root="sqrt", gone={"minus": {"from": "x", "by": "root"}}),
    body(
        size="abs", more={"plus": 1}, small="log", part={"divide": {"from": "x", "by": "more"}}, sum={"plus": "small"}
    ),
    body(square="square", mean={"mean": {"over": "d_model"}}, more={"plus": 0.1}, root="rsqrt", normal={"times": "x"}),
    body(
        other={"scale": -1},
        most={"maximum": "x"},
        least={"minimum": {"from": "other", "by": "x"}},
        sum={"plus": "most"},
    ),
    body(low="sigmoid", more={"plus": 0.5}, grown={"power": 1.5}, other={"power": {"from": "more", "by": "grown"}}),
    body(
        score={"linear": "heads"},
        high={"greater": {"from": "score", "by": 1.0e6}},
        low={"less_equal": {"from": "score", "by": -1.0e6}},
        either={"or": "high"},
        none="not",
        seen={"and": {"by": "none"}},
        kept={"where": {"condition": "seen", "otherwise": 0, "from": "score"}},
        chosen={"where": {"condition": "high", "then": "kept", "otherwise": "x"}},
        output={"linear": {"over": ["heads", "d_model"], "to": "d_model"}},
    ),
    body(ramp={"indices": "d_model"}, wave="sin", sum={"plus": "x"}),
    body(
        halves={"constant": {"axes": "heads", "value": [0.5, -1]}},
        product={"times": {"from": "x", "by": "halves"}},
        sum={"sum": {"over": "heads"}},
    ),
    {"dropout": 0.1},
    {"softmax": "d_model"},
    "zero_padding",
    "feed_forward",
    {"sublayer": "feed_forward"},
    body(top={"keep_top": {"count": 5, "over": "d_model"}}, share={"softmax": "d_model"}),
    body(gate={"linear": "d_model"}, opened="sigmoid", product={"times": {"by": "x"}}),
    body(vector={"weight": "d_model"}, product={"times": {"from": "x", "by": "vector"}}),
    body(parts={"split": {"axis": "d_model", "into": HEADS}}, whole={"merge": {"axes": HEADS, "to": "d_model"}}),
    body(
        parts={"split": {"axis": "d_model", "into": HEADS}},
        normal="layer_norm",
        turned={"merge": {"axes": HEADS[::-1], "to": "d_model"}},
    ),
    body(
        a={"weight": "d_model"},
        b={"weight": {"from": "x", "axes": "d_model"}},
        share={"contract": {"from": "a", "by": "b", "over": "d_model"}},
        product={"times": {"from": "x", "by": "share"}},
    ),
    body(
        wide={"join": {"by": "x", "to": "both"}},
        part={"cut": {"axis": "both", "into": ["d_ff", "left"], "keep": "left"}},
        narrow={"linear": "d_model"},
    ),
    body(other="tanh", wide={"join": {"by": "x", "to": "both"}}, narrow={"linear": "d_model"}),
    body(
        scores={"linear": {"to": "experts", "bias": False}},
        best={"top": {"over": "experts", "to": "chosen"}},
        kept={"take": {"from": "scores", "by": "best", "over": "experts"}},
        share={"softmax": "chosen"},
        networks={"expert_linear": {"from": "x", "by": "best", "experts": "experts", "to": "d_model"}},
        weighted={"times": {"by": "share"}},
        output={"sum": {"over": "chosen"}},
    ),
    body(
        best={"argmax": "d_model"},
        vector={"embedding": {"size": "d_k", "entries": "d_model"}},
        hot={"one_hot": {"from": "best", "to": "experts"}},
        both={"times": {"by": "vector"}},
        output={"linear": {"over": ["experts", "d_k"], "to": "d_model"}},
        sum={"plus": {"by": "x"}},
    ),
    body(
        inner={"linear": ["experts", "d_ff"]},
        active="relu",
        gate={"linear": {"from": "x", "to": "experts", "bias": False}},
        top={"keep_top": {"count": 2, "over": "experts"}},
        share={"softmax": "experts"},
        weighted={"times": {"from": "active", "by": "share"}},
        output={"linear": {"over": ["experts", "d_ff"], "to": "d_model"}},
    ),
    body(
        scores={"linear": "experts"},
        best={"top": {"over": "experts", "to": "chosen"}},
        kept={"take": {"from": "scores", "by": "best", "over": "experts"}},
        again={"scatter": {"by": "best", "over": "chosen", "to": "experts"}},
        output={"linear": "d_model"},
    ),
    {"dropout": {"probability": 0.5, "each": "batch"}},
    {"add": {"sinusoid": {"at": 3}}},
    {"add": {"learned_positions": {"limit": "heads", "at": "heads - 1"}}},
    {
        "repeat": 3,
        "index": "turn",
        "shared": True,
        "do": [
            {"add": {"sinusoid": {"at": "turn"}}},
            {"residual": {"linear": {"to": "d_model"}}},
            {"choose": "turn % 2", "0": ["tanh"], "otherwise": [{"scale": "1 / (turn + 1)"}]},
        ],
    },
    body(
        layers={
            "repeat": 2,
            "index": "turn",
            "carry": {"before": "x"},
            "do": body(
                wide={"linear": {"to": {"d_ff": "d_ff + turn"}}},
                narrow={"linear": "d_model"},
                sum={"plus": {"by": "before"}},
                before="tanh",
            )["do"],
        },
        skipped={"plus": {"by": "layers/0/sum"}},
    ),
]
"""What works on each position alone."""

CARRIED: list[Step] = [
    "cumulative_sum",
    body(start="first", sum={"plus": {"from": "x", "by": "start"}}),
    "rnn",
    "gru",
    "lstm",
    "lru",
    {"add": "sinusoid"},
    {"add": {"sinusoid": {"base": 100, "offset": 2, "halves": True, "endpoint": True}}},
    {"rope": {"part": 4, "halves": True, "scaling": "yarn", "factor": 4, "original_positions": 16}},
    {"rope": {"scaling": "dynamic", "factor": 4, "original_positions": 3}},
    body(place={"position": {"from": "x"}}, slow={"scale": 0.1}, product={"times": {"by": "x"}}),
    {"add": {"learned_positions": "max_positions"}},
    {"add": "recurrent_positions"},
    {"shift_positions": 1},
    body(before={"shift_positions": 3}, product={"times": {"by": "x"}}),
    "causal_self_attention",
    body(
        keys="as_keys",
        scores={"contract": {"from": "x", "by": "keys", "over": "d_model"}},
        seen={"mask": {"causal": True}},
        gates="sigmoid",
        far={"cumulative_sum": {"over": "keys", "reverse": True}},
        taken={"softmax": {"from": "seen", "over": "keys"}},
        before={"shift_positions": 1},
        sums="cumulative_sum",
        rate={"weight": {"initial": 0.5}},
        slow={"times": "sums"},
        moved={"plus": "far"},
        scored={"plus": "scores"},
        again={"mask": {"causal": True}},
        weights={"softmax": "keys"},
        output={"contract": {"by": "keys", "over": "keys"}},
    ),
    {"sublayer": "causal_self_attention"},
    {"sublayer": "causal_linear_attention"},
    body(
        keys="as_keys",
        best={"argmax": {"from": "x", "over": "d_model"}},
        words="as_keys",
        scores={"contract": {"from": "x", "by": "keys", "over": "d_model"}},
        seen={"mask": {"causal": True}},
        weights={"softmax": "keys"},
        copied={"scatter": {"by": "words", "over": "keys", "to": "experts"}},
        output={"linear": "d_model"},
    ),
    body(
        sums="cumulative_sum",
        nothing={"scale": {"from": "x", "factor": 0}},
        ones={"shift": 1},
        count="cumulative_sum",
        mean={"divide": {"from": "sums", "by": "count"}},
    ),
    _cell({"total": "d_model"}, half={"scale": {"from": "total", "factor": 0.5}}, total={"plus": {"by": "x"}}),
    _cell(
        {"memory": HEADS, "count": "heads"},
        new={"linear": HEADS},
        memory={"plus": {"by": "memory"}},
        size={"contract": {"by": "new", "over": "d_k"}},
        squashed="tanh",
        count={"plus": {"by": "count"}},
        weighted={"times": {"from": "memory", "by": "squashed"}},
        output={"linear": {"over": HEADS, "to": "d_model"}},
    ),
    _cell(
        {"memory": ["d_model", "d_state"]},
        rate={"weight": ["d_model", "d_state"]},
        fading="sigmoid",
        entrance={"weight": {"from": "x", "axes": ["d_model", "d_state"]}},
        kept={"times": {"from": "memory", "by": "fading"}},
        new={"times": {"from": "x", "by": "entrance"}},
        memory={"plus": {"by": "kept"}},
        result={"sum": {"over": "d_state"}},
    ),
    _cell({"hidden": "d_model"}, **GATED),
    _cell(
        {"memory": ["heads", "d_k", "d_v"], "last": "d_model"},
        key={"linear": {"from": "last", "to": ["heads", "d_k"]}},
        value={"linear": {"from": "x", "to": ["heads", "d_v"]}},
        new={"times": {"from": "key", "by": "value"}},
        gate={"linear": {"from": "x", "to": "heads"}},
        open="sigmoid",
        kept={"times": {"from": "memory", "by": "open"}},
        memory={"plus": {"by": "new"}},
        last={"scale": {"from": "x", "factor": 1}},
        seen={"contract": {"from": "memory", "by": "key", "over": "d_k"}},
        output={"linear": {"over": ["heads", "d_v"], "to": "d_model"}},
    ),
]
"""What sees the positions up to its own."""

CROSSED: list[Step] = [
    {"sublayer": {"cross_attention": {"memory": "encoder"}}},
    {"cross_attention": {"memory": "encoder"}},
    {"plus": {"by": "vector"}},
    {"gru_from": {"start": "vector"}},
    {"recurrence": {"state": {"hidden": "d_model"}, "start": "vector", "cell": body(**GATED)}},
    body(
        near={"linear": {"from": "vector", "to": "d_model"}},
        opened="sigmoid",
        product={"times": {"from": "x", "by": "opened"}},
    ),
    _cell(
        {"hidden": "d_model"},
        query={"linear": {"from": "hidden", "to": "d_k"}},
        key={"linear": {"from": "encoder", "to": "d_k"}},
        context={"attend": {"query": "query", "key": "key", "value": "encoder", "width": "d_k"}},
        both={"plus": {"by": "x"}},
        hidden={"gru_cell": {"hidden": "hidden", "size": "d_model"}},
    ),
]
"""What a decoder sees of an encoder."""

BACKWARD: list[Step] = [
    "self_attention",
    {"sublayer": "self_attention"},
    {"sublayer": "linear_attention"},
    {"cumulative_sum": {"reverse": True}},
    {"rnn": {"reverse": True}},
    {"gru": {"reverse": True}},
    {"lstm": {"reverse": True}},
    {"recurrence": {"state": {"hidden": "d_model"}, "reverse": True, "cell": body(**GATED)}},
    {"convolution": {"width": 3}},
    {"convolution": {"width": 3, "dilation": 2, "depthwise": True}},
    {"convolution": {"width": 3, "groups": 2, "padding": "same"}},
    body(
        short={"convolution": {"width": 3, "stride": 2, "padding": "none"}},
        active="relu",
        again={"convolution": {"width": 2, "stride": 2, "causal": True}},
        mean="mean",
        sum={"plus": {"by": "x"}},
    ),
    body(
        short={"convolution": {"width": 3, "stride": 4}},
        active="relu",
        half={"transposed_convolution": {"width": 3, "stride": 2}},
        whole={"transposed_convolution": {"width": 2, "stride": 2, "bias": False}},
        sum={"plus": {"by": "x"}},
    ),
    body(
        more={"transposed_convolution": {"width": 5, "stride": 2}},
        placed={"add": "sinusoid"},
        attended={"cross_attention": {"from": "x", "memory": "placed"}},
    ),
    body(
        short={"pool": {"width": 2, "function": "mean"}},
        long={"stretch": 3},
        mixed={"convolution": {"width": 3, "stride": 3}},
        attended={"cross_attention": {"from": "x", "memory": "mixed"}},
    ),
    body(
        plane={
            "transposed_convolution": {
                "width": [3, 2],
                "stride": [2, 2],
                "over": ["positions", "d_model"],
                "to": "heads",
            }
        },
        flat={"linear": {"over": ["d_model_times_2", "heads"], "to": "d_model"}},
        short={"slice": {"step": 2}},
        attended={"cross_attention": {"from": "x", "memory": "short"}},
    ),
    body(
        short={"convolution": {"width": 3, "stride": 3, "depthwise": True}},
        attended={"cross_attention": {"from": "x", "memory": "short"}},
    ),
    body(
        plane={"convolution": {"width": [3, 3], "stride": [1, 2], "over": ["positions", "d_model"], "to": "heads"}},
        flat={"linear": {"over": ["d_model_by_2", "heads"], "to": "d_model"}},
    ),
    body(
        longer={"prepend": {"weight": ["heads", "d_model"]}},
        mixed={"sublayer": "self_attention"},
        rest={"slice": 2},
        normal="layer_norm",
    ),
    body(
        half={"slice": {"step": 2}},
        both={"concatenate": {"from": "x", "by": "half"}},
        placed={"add": "sinusoid"},
        attended={"cross_attention": {"from": "x", "memory": "placed"}},
    ),
    body(
        first={"slice": {"stop": 3}},
        ended={"append": {"weight": "d_model"}},
        pooled={"pool": {"width": 2, "function": "mean"}},
        attended={"cross_attention": {"from": "x", "memory": "pooled"}},
    ),
    body(angles="position_angles", mixed={"fourier_mixing": {"from": "x", "angles": "angles"}}),
    {"roll": 2},
    "reverse",
    body(end={"slice": -2}, attended={"cross_attention": {"from": "x", "memory": "end"}}),
    body(later={"shift_positions": -2}, sum={"plus": {"by": "x"}}),
    body(near={"pool": {"width": 3, "stride": 1, "padding": "same"}}, sum={"plus": {"by": "x"}}),
    body(mean="mean", sum={"plus": {"from": "x", "by": "mean"}}),
    body(most="max", sum={"times": {"from": "x", "by": "most"}}),
    body(end="last", sum={"plus": {"from": "x", "by": "end"}}),
    body(
        best={"argmax": "d_model"},
        sums={"scatter": {"from": "x", "by": "best", "over": "positions", "to": "experts"}},
        all={"linear": {"over": ["d_model", "experts"], "to": "d_model"}},
        sum={"plus": {"by": "x"}},
    ),
    {"softmax": "positions"},
    body(
        score={"linear": "heads"},
        share={"softmax": "positions"},
        pooled={"contract": {"by": "x", "over": "positions"}},
        mixed={"linear": {"over": ["heads", "d_model"], "to": "d_model"}},
        sum={"plus": {"by": "x"}},
    ),
    body(all="sum", part={"divide": {"from": "x", "by": "all"}}, small="tanh"),
]
"""What sees positions after its own."""

UNMASKED: list[Step] = [
    body(products={"contract": {"by": "x", "over": "positions"}}, sum={"plus": {"from": "x", "by": "products"}})
]
"""What sees all positions, padding included."""

NORMALIZERS: dict[str, dict[str, Step]] = {
    "softmax": {"weights": {"softmax": "keys"}},
    "relu": {"weights": "relu"},
    "top": {"best": {"keep_top": {"count": 2, "over": "keys"}}, "weights": {"softmax": "keys"}},
    "sigmoid": {"weights": "sigmoid"},
    "exp": {
        "positive": "exp",
        "total": {"sum": {"over": "keys"}},
        "more": {"shift": 1},
        "weights": {"divide": {"from": "positive", "by": "more"}},
    },
}


@st.composite
def attentions(draw: st.DrawFn, causal: bool, memory: str = "x") -> Step:
    """Attention that is written out, its parts in any order, within a window or with a bias."""
    axes = draw(st.sampled_from([["heads"], [], ["groups"]]))
    window = draw(st.sampled_from([{}, {"window": "window"}])) if memory == "x" else {}
    swapped, turned = draw(st.booleans()), draw(st.booleans())
    bias = draw(st.sampled_from([None, *axes]))
    far = memory == "x" and draw(st.booleans())
    query, key = ("keys", "query") if swapped else ("query", "keys")
    steps: dict[str, Step] = {
        "normal": "layer_norm",
        "query": {"linear": [*axes, "d_k"]},
        "key": {"linear": {"from": "normal" if memory == "x" else memory, "to": [*axes, "d_k"]}},
        "keys": {"as_keys": window},
        "value": {"linear": {"from": memory, "to": [*(axes if draw(st.booleans()) else []), "d_v"]}},
        "values": {"as_keys": window},
        "scores": {"contract": {"from": query, "by": key, "over": "d_k"}},
        "scaled": {"scale": "1 / sqrt(d_k)"},
    }
    if bias:
        steps |= {"bias": {"weight": bias}, "biased": {"plus": {"from": "scaled", "by": "bias"}}}
    if far:
        given = {"from": list(steps)[-1]}
        steps |= {"far": {"distance": given}, "near": {"scale": -0.1}, "nearer": {"plus": {**given, "by": "near"}}}
    steps |= {"seen": {"mask": {"causal": causal}}, **NORMALIZERS[draw(st.sampled_from(list(NORMALIZERS)))]}
    mixed = {"from": "values", "by": "weights"} if turned else {"by": "values"}
    steps |= {"mixed": {"contract": {**mixed, "over": "keys"}}}
    return {"do": {**steps, "output": {"linear": {"over": [*axes, "d_v"], "to": "d_model"}}}}


CONVOLUTIONS: Strategy = st.fixed_dictionaries(
    {"width": st.integers(1, 3)},
    optional={"dilation": st.integers(1, 3), "depthwise": st.just(True), "bias": st.booleans()},
).map(lambda given: {"convolution": {**given, "causal": True}})


def _nested(inner: Strategy) -> Strategy:
    several = st.lists(inner, min_size=1, max_size=2)
    return st.one_of(
        several.map(lambda steps: {"residual": {"do": named(steps)}}),
        several.map(lambda steps: {"sublayer": {"do": named(steps)}}),
        several.map(lambda steps: {"repeat": 2, "do": named(steps)}),
        several.map(lambda steps: {"repeat": 2, "shared": True, "do": named(steps)}),
        several.map(lambda steps: {"do": {**named(steps), "sum": {"plus": {"by": "x"}}}}),
    )


def _steps(one: Strategy, most: int) -> Steps:
    return st.lists(st.recursive(one, _nested, max_leaves=3), max_size=most)


_causal = st.one_of(st.sampled_from(POINTWISE), st.sampled_from(CARRIED), attentions(True), CONVOLUTIONS)
_crossed = st.one_of(st.sampled_from(CROSSED), attentions(False, "encoder"))
_backward = st.one_of(st.sampled_from(BACKWARD), attentions(False))

CAUSAL_STEPS = _steps(_causal, 4)
"""Steps of a language model."""

DECODER_STEPS = _steps(st.one_of(_crossed, _causal), 4)
"""Steps of the decoder of a translation."""

ENCODER_STEPS = _steps(st.one_of(_backward, _causal), 3)
"""Steps of what sees all of its sequence."""

BACKWARD_STEP = st.one_of(_backward, st.sampled_from(UNMASKED))
"""One step that is not causal."""
