"""Invalid specs: mutations of valid documents, and steps with arguments of any kind."""

import copy
from typing import Any

import yaml
from hypothesis import strategies as st
from task_specs import DECLARED, SPECS

from xformc.compiler.graph.primitives import PRIMITIVES
from xformc.compiler.spec.load import shipped_blocks
from xformc.specs import SHIPPED, shipped_specs

Document = Any
"""What YAML makes of a spec, or of a part of one."""

Holder = dict[str, Document] | list[Document]


def _read(text: str) -> Document:
    """The document, with one layer where that is enough."""
    document = yaml.safe_load(text)
    if _has_layers(document) and "/1/" not in text:
        document["sizes"] = {**document.get("sizes", {}), "layers": 1}
    return document


def _has_layers(document: Document) -> bool:
    """Whether it, or what it extends, has layers."""
    if "layers" in document.get("sizes", {}):
        return True
    base = document.get("extends")
    return base is not None and _has_layers(yaml.safe_load((SHIPPED / f"{base}.yaml").read_text()))


def _with_blocks(name: str) -> Document:
    document = _read((SHIPPED / "transformer_base.yaml").read_text())
    return {**document, "blocks": yaml.safe_load((SHIPPED / "blocks" / f"{name}.yaml").read_text())}


DOCUMENTS = [
    *(_read(path.read_text()) for path in shipped_specs().values()),
    _with_blocks("transformer"),
    _with_blocks("attention"),
    *(yaml.safe_load(text) for text in SPECS.values()),
    *(yaml.safe_load(text) for text in DECLARED.values()),
]
WORDS = sorted({word for document in DOCUMENTS for word in yaml.safe_dump(document).replace(":", " ").split()})
BLOCKS = sorted(shipped_blocks())
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

NAMES = st.sampled_from(["x"] * 8 + ["encoder", "target", "parts", "keys", "scores", "weights", "b0"])
SIZES = st.sampled_from(["d_model", "heads", "d_k", "d_v", "vocabulary", "d_ff"])
ARGUMENTS: dict[str, st.SearchStrategy[Document]] = {
    "value": NAMES,
    "operand": NAMES | st.sampled_from([0, 0.5, "1 / heads"]),
    "flag": st.booleans(),
    "number": st.sampled_from([0, 0.5, 0.25, 1, 2, 3, "d_model", "1 / heads"]),
    "numbers": st.sampled_from([0.5, [1, 2], [], [[1, "heads"], 2]]),
    "initial": st.sampled_from([0.5, "one", "identity", {"normal": "1 / heads"}, "orthogonal", {"uniform": -1}]),
    "axis": SIZES,
    "axes": SIZES | st.lists(SIZES, min_size=1, max_size=3),
    "name": st.sampled_from(["positions", "keys", "d_model", "heads"]),
    "word": st.sampled_from(["sin", "self", "cross", "before", "x", "yarn"]),
    "states": st.dictionaries(st.sampled_from(["a", "x", "d_k"]), SIZES, max_size=2),
}


def calls(inner: st.SearchStrategy[Document], *, wrong: bool) -> st.SearchStrategy[Document]:
    """Primitives with arguments, of the right kinds unless `wrong`, and steps under `do`."""
    body = st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    nested = st.fixed_dictionaries({"do": body}, optional={"repeat": st.integers(0, 2), "from": NAMES})
    choices: list[st.SearchStrategy[Document]] = [nested]
    for name, primitive in PRIMITIVES.items():
        taken = {key: ARGUMENTS.get(item.kind, inner) for key, item in primitive.takes.items()}
        if wrong:
            taken = {key: one | VALUES for key, one in taken.items()}
        needed = {key: one for key, one in taken.items() if primitive.takes[key].required and not wrong}
        others = {key: one for key, one in taken.items() if key not in needed}
        arguments = st.fixed_dictionaries(needed, optional={"from": NAMES, **others})
        choices.append(arguments.map(lambda given, name=name: {name: given} if given else name))
    return st.one_of(*choices)


_WORDS_AS_STEPS = st.sampled_from(["relu", "layer_norm", "sinusoid", "feed_forward", "self_attention", "as_keys"])
RIGHT_KINDS = st.recursive(_WORDS_AS_STEPS, lambda inner: calls(inner, wrong=False), max_leaves=6)
ANY_KINDS = st.recursive(
    _WORDS_AS_STEPS | st.sampled_from(BLOCKS), lambda inner: calls(inner, wrong=True), max_leaves=4
)


def holders(value: Document) -> list[Holder]:
    """Every mapping and list in a document that has anything in it."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    own = [value] if isinstance(value, dict | list) and value else []
    return own + [holder for item in inner for holder in holders(item)]


@st.composite
def mutants(draw: st.DrawFn) -> Document:
    """A shipped spec after one to three mutations."""
    document = copy.deepcopy(draw(st.sampled_from(DOCUMENTS)))
    for _ in range(draw(st.integers(1, 3))):
        if found := holders(document):
            _mutate(draw, draw(st.sampled_from(found)), found)
    return document


def _mutate(draw: st.DrawFn, holder: Holder, known: list[Holder]) -> None:
    key = draw(st.sampled_from([*_keys(holder)]))
    kind = draw(st.sampled_from(list(_MUTATIONS)))
    _MUTATIONS[kind](draw, holder, key, known)


def _keys(holder: Holder) -> list[Any]:
    return list(holder) if isinstance(holder, dict) else list(range(len(holder)))


def _delete(draw: st.DrawFn, holder: Any, key: Any, known: list[Holder]) -> None:
    del holder[key]


def _rename(draw: st.DrawFn, holder: Any, key: Any, known: list[Holder]) -> None:
    value = holder.pop(key)
    _add(draw, holder, value)


def _duplicate(draw: st.DrawFn, holder: Any, key: Any, known: list[Holder]) -> None:
    _add(draw, holder, copy.deepcopy(holder[key]))


def _replace(draw: st.DrawFn, holder: Any, key: Any, known: list[Holder]) -> None:
    holder[key] = draw(VALUES)


def _move(draw: st.DrawFn, holder: Any, key: Any, known: list[Holder]) -> None:
    """Something else of the same spec comes here."""
    other: Any = draw(st.sampled_from(known))
    holder[key] = copy.deepcopy(other[draw(st.sampled_from(_keys(other)))] if other else None)


def _graft(draw: st.DrawFn, holder: Any, key: Any, known: list[Holder]) -> None:
    """Something of another spec comes here, of the same name where it has one."""
    others = holders(draw(st.sampled_from(DOCUMENTS)))
    same = [other for other in others if isinstance(other, dict) and key in other]
    other: Any = draw(st.sampled_from(same or others))
    holder[key] = copy.deepcopy(other[key if same else draw(st.sampled_from(_keys(other)))])


def _step(draw: st.DrawFn, holder: Any, key: Any, known: list[Holder]) -> None:
    """A step with arguments of any kinds comes here, or beside it."""
    if draw(st.booleans()):
        holder[key] = draw(ANY_KINDS)
    else:
        _add(draw, holder, draw(ANY_KINDS))


def _add(draw: st.DrawFn, holder: Any, value: Document) -> None:
    if isinstance(holder, dict):
        holder[draw(st.sampled_from(WORDS) | st.text(max_size=5))] = value
    else:
        holder.insert(draw(st.integers(0, len(holder))), value)


_MUTATIONS = {
    "delete": _delete,
    "rename": _rename,
    "duplicate": _duplicate,
    "replace": _replace,
    "move": _move,
    "graft": _graft,
    "step": _step,
}
