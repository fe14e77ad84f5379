"""Whatever is done to a shipped spec, the answer is a graph or a SpecError: never a traceback."""

import contextlib
import copy
import tempfile
from pathlib import Path

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from task_specs import SPECS

from xformc.compiler import compile_spec
from xformc.compiler.spec import SpecError, load_spec
from xformc.compiler.spec.load import SHIPPED, shipped_specs
from xformc.compiler.graph.primitives import PRIMITIVES

DOCUMENTS = [yaml.safe_load(path.read_text()) for path in shipped_specs()]
DOCUMENTS.append(
    {
        **yaml.safe_load((SHIPPED / "transformer_base.yaml").read_text()),
        "blocks": yaml.safe_load((SHIPPED / "blocks" / "transformer.yaml").read_text()),
    }
)
DOCUMENTS += [yaml.safe_load(text) for text in SPECS.values()]
WORDS = sorted({word for document in DOCUMENTS for word in yaml.dump(document).replace(":", " ").split()})
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 10),
    st.sampled_from([10**6, 10**18, -1, 0.5, 1e300, float("nan"), float("inf"), -0.0]),
    st.sampled_from(WORDS),
    st.sampled_from(["x", "../x", "/etc/passwd", "d_model * d_model", "1 / 0", "sqrt(-1)", "((", "\0", "é", "a" * 300]),
    st.text(max_size=8),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3)
)


def holders(value: object) -> list[dict[str, object] | list[object]]:
    """Every mapping and list in a document."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    own = [value] if isinstance(value, dict | list) and value else []
    return own + [holder for item in inner for holder in holders(item)]


def mutate(document: object, data: st.DataObject) -> None:
    """Delete, rename, replace or copy something."""
    holder = data.draw(st.sampled_from(holders(document)))
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key = data.draw(st.sampled_from(keys))
    what = data.draw(st.sampled_from(["delete", "rename", "replace", "replace", "move"]))
    if what == "delete":
        del holder[key]
    elif what == "rename" and isinstance(holder, dict):
        holder[data.draw(st.one_of(st.sampled_from(WORDS), st.text(max_size=5)))] = holder.pop(key)
    elif what == "move":
        other = data.draw(st.sampled_from(holders(document)))
        holder[key] = copy.deepcopy(data.draw(st.sampled_from([*other.values()] if isinstance(other, dict) else other)))
    else:
        holder[key] = data.draw(VALUES)


def check(content: bytes) -> None:
    """Load and compile a spec of this content; only SpecError may come of it."""
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(SpecError):
        path = Path(folder) / "model.yaml"
        path.write_bytes(content)
        spec = load_spec(path)
        graph = compile_spec(spec)
        again = Path(folder) / "again.yaml"
        again.write_text(spec.resolved_yaml(), encoding="utf-8")
        assert compile_spec(load_spec(again)) == graph


@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_mutated_specs_give_a_graph_or_a_spec_error(data: st.DataObject) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from(DOCUMENTS)))
    for _ in range(data.draw(st.integers(1, 3))):
        if holders(document):
            mutate(document, data)
    check(yaml.safe_dump(document, allow_unicode=True, sort_keys=False).encode())


NAMES = st.sampled_from(["x"] * 8 + ["encoder", "a", "target"])
SIZES = st.sampled_from(["d_model", "heads", "d_k", "d_v", "vocabulary", "d_ff"])
ARGUMENTS = {
    "value": NAMES,
    "flag": st.booleans(),
    "number": st.sampled_from([0, 0.5, 0.25, "d_model", "1 / heads"]),
    "axis": SIZES,
    "axes": SIZES | st.lists(SIZES, min_size=1, max_size=3),
    "name": st.sampled_from(["positions", "keys", "d_model", "heads"]),
}


def calls(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Primitives with arguments of the right kind, and steps under `do`, perhaps applied to another value."""
    body = st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    choices = [st.fixed_dictionaries({"do": body}, optional={"repeat": st.integers(0, 2), "from": NAMES})]
    for name, primitive in PRIMITIVES.items():
        taken = primitive.takes.items()
        needed = {key: ARGUMENTS.get(item.kind, inner) for key, item in taken if item.required}
        others = {key: ARGUMENTS[item.kind] for key, item in taken if not item.required}
        arguments = st.fixed_dictionaries(needed, optional={"from": NAMES, **others})
        choices.append(arguments.map(lambda given, name=name: {name: given}))
    return st.one_of(*choices)


WORDS_AS_STEPS = ["relu", "layer_norm", "sinusoid", "feed_forward", "self_attention"]
STEPS = st.recursive(st.sampled_from(WORDS_AS_STEPS), calls, max_leaves=6)


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, min_size=1, max_size=5))
def test_random_steps_give_a_graph_or_a_spec_error(body: list[object]) -> None:
    document = {
        "extends": "transformer_base",
        "sizes": {"layers": 1, "heads": 2, "d_model": 8, "d_ff": 8, "vocabulary": 8},
        "tie": [],
        "model": {"decoder": {"do": ["embed", {"sublayer": {"cross_attention": {"memory": "encoder"}}}, *body]}},
    }
    check(yaml.safe_dump(document, sort_keys=False).encode())


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damaged_text_gives_a_graph_or_a_spec_error(data: st.DataObject) -> None:
    text = (SHIPPED / "transformer_base.yaml").read_bytes()
    at = data.draw(st.integers(0, len(text)))
    gone = data.draw(st.integers(0, 20))
    check(text[:at] + data.draw(st.binary(max_size=6)) + text[at + gone :])
