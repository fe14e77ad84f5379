"""libxformc cuts texts as the package tokenizers does, or says what it lacks."""

import json
import random
import shutil
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_engine import copy_model, make_engine, text_input, write_manifest

from tests.conformance.engines import FOLDER
from tests.conformance.vocabularies import QWEN, byte_pairs, codes
from tests.laws.settings import TIMES
from tests.native import unicode_tables
from tests.runtime.kernel_session import kernel_library
from xformc.errors import UserError
from xformc.format.tokens import SPECIAL
from xformc.runtime.libxformc import CppEngine
from xformc.runtime.text.json_vocabulary import JsonVocabulary
from xformc.runtime.text.tokenizer import Tokenizer

tokenizers: Any = pytest.importorskip("tokenizers")

LLAMA = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|")
POOLS = (
    "abcdefghij", "ABCXYZ", "0123456789", "  \t\n\r\u00a0\u3000\u2028\u0085\x1c\x0b", "'\"!?.,-_@#$%^&*()[]{}<>|/\\~`",
    "éüñçßſİıΣςσ", "日本語漢字カタかな", "العربيةשלום", "हिन्दी்ி",
    "\u0301\u0300\u0323\u0327\u0345\u0334\u0f71\u0f72", "가각힣각",
    "😀👨‍👩‍👧🏽", "٠١٢⅓²ⅷ①", "\u200b\u200d\ufeff\0\x7f\u2060\ufffd\ufffe", "ΩÅKﬁ豈\u1e9b\u0958\u2adc\u0344",
)  # fmt: skip
WORDS = (
    "'s",
    "'S",
    "'\u017f",
    "'t",
    "'RE",
    "'vE",
    "'ll",
    "'D",
    "'r",
    "don't",
    " the",
    "quick ",
    "été",
    "<mask>",
    "<tool>",
    "</s>",
)


def odd_text(draw: random.Random) -> str:
    """A text of many scripts, by runs of one."""
    runs = [
        draw.choice(WORDS) if draw.random() < 0.2
        else chr(draw.choice((draw.randrange(0xD800), draw.randrange(0xE000, 0x110000)))) if draw.random() < 0.1
        else "".join(draw.choices(draw.choice(POOLS), k=draw.randint(1, 5)))
        for _ in range(draw.randint(0, 20))
    ]  # fmt: skip
    return "".join(runs)


def changed(**changes: object) -> dict[str, Any]:
    """The tokenizer of pieces of bytes with other values; `__` stands between the keys of a path."""
    content: dict[str, Any] = json.loads(json.dumps(byte_pairs()))
    for name, value in changes.items():
        *path, last = name.split("__")
        section = content
        for key in path:
            section = section[key]
        section[last] = value
    return content


def gpt2(*, prefix: bool, **changes: object) -> dict[str, Any]:
    step = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}
    return changed(pre_tokenizer=step, post_processor=step, normalizer=None, **changes)


def roberta() -> dict[str, Any]:
    sides = {"sep": ["</s>", 3], "cls": ["<s>", 2]}
    template = {"type": "RobertaProcessing", **sides, "trim_offsets": True, "add_prefix_space": True}
    mask = {"id": 271, "content": "<mask>", "lstrip": True, "rstrip": False, "normalized": False, "special": True}
    added = [*byte_pairs()["added_tokens"], {**mask, "single_word": False}]  # pyright: ignore[reportGeneralTypeIssues]
    return {**gpt2(prefix=True), "post_processor": template, "added_tokens": added}


def llama3() -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": LLAMA}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    sequence = {"type": "Sequence", "pretokenizers": [split, level]}
    items = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    special = {"<s>": {"id": "<s>", "ids": [2], "tokens": ["<s>"]}}
    pair = [*items, {"Sequence": {"id": "B", "type_id": 1}}]
    template = {"type": "TemplateProcessing", "single": items, "pair": pair, "special_tokens": special}
    processors = {"type": "Sequence", "processors": [level, template]}
    whole = {**byte_pairs()["model"], "ignore_merges": True}  # pyright: ignore[reportGeneralTypeIssues]
    return changed(pre_tokenizer=sequence, normalizer=None, post_processor=processors, model=whole)


def digits() -> dict[str, Any]:
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return changed(
        pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, level]}
    )


def characters() -> dict[str, Any]:
    fuse = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    return {
        "version": "1.0",
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False},
        "decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, fuse]},
        "model": {
            "type": "WordLevel",
            "vocab": {one: number for number, one in enumerate(["<pad>", "<unk>", "<s>", "</s>", *"▁abcdé日\u0301"])},
            "unk_token": "<unk>",
        },
    }


MARK = "▁"
PREPEND = {"type": "Prepend", "prepend": MARK}
MARKED = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
SPACED = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
AFTER = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}


def metaspace(scheme: str, *, split: bool) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": split}


def with_marks(decoder: object, **steps: object) -> dict[str, Any]:
    """Byte pairs of characters with a mark for each space, and bytes for other characters."""
    pieces = [
        "<pad>",
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *f"{MARK}abcdefghijquickthe",
    ]
    pairs = [("q", "u"), ("qu", "i"), ("c", "k"), ("t", "h"), ("th", "e"), (MARK, "the"), ("qui", "ck"), (MARK, MARK)]
    pieces = [*dict.fromkeys([*pieces, "é", "日", "\n", "<", *(left + right for left, right in pairs)])]
    model = {
        "type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True, "ignore_merges": False,
        "vocab": {piece: number for number, piece in enumerate(pieces)}, "merges": [[*pair] for pair in pairs],
    }  # fmt: skip
    added = [_special(number, piece) for number, piece in enumerate(pieces[:4])]
    added.append({**_special(len(pieces), "<mask>"), "special": False, "lstrip": True})
    added.append({**_special(len(pieces) + 1, "<tool>"), "special": False, "normalized": True})
    return {"version": "1.0", "added_tokens": added, "model": model, "decoder": decoder, **steps}


def in_order(kind: str, *steps: object) -> dict[str, object]:
    return {"type": "Sequence", kind: [*steps]}


def llama2() -> dict[str, Any]:
    items = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    special = {"<s>": {"id": "<s>", "ids": [2], "tokens": ["<s>"]}}
    template = {"type": "TemplateProcessing", "single": items, "pair": items, "special_tokens": special}
    decoder = in_order("decoders", SPACED, {"type": "ByteFallback"}, {"type": "Fuse"}, STRIP)
    return with_marks(decoder, normalizer=in_order("normalizers", PREPEND, MARKED), post_processor=template)


def mistral() -> dict[str, Any]:
    decoder = in_order("decoders", SPACED, {"type": "ByteFallback"}, {"type": "Fuse"}, STRIP)
    return with_marks(decoder, pre_tokenizer=metaspace("first", split=False))


def gemma() -> dict[str, Any]:
    decoder = in_order("decoders", SPACED, {"type": "ByteFallback"}, {"type": "Fuse"})
    return with_marks(decoder, normalizer=MARKED, pre_tokenizer=AFTER)


def spaces() -> dict[str, Any]:
    return with_marks(in_order("decoders", {"type": "ByteFallback"}, {"type": "Fuse"}), pre_tokenizer=AFTER)


def marks(scheme: str) -> dict[str, Any]:
    return with_marks(metaspace(scheme, split=True), pre_tokenizer=metaspace(scheme, split=True))


def words() -> dict[str, Any]:
    pieces = ["<pad>", "<unk>", "<s>", "</s>", "quick", "été", "'s", "don't", "the"]
    model = {"type": "WordLevel", "vocab": {one: number for number, one in enumerate(pieces)}, "unk_token": "<unk>"}
    return {"version": "1.0", "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}


def bert(*, lowercase: bool = True, cleanup: bool = True) -> dict[str, Any]:
    """Word pieces as BERT's; one word of each script is a piece, others are cut into letters or unknown."""
    letters = "abcdefghijklmnopqrstuvwxyzéßñ日本語漢字ωπς0123456789'!?.,#कखअर가각i\u0307\u0345"
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        *dict.fromkeys(letters),
        *(f"##{one}" for one in dict.fromkeys(letters)),
    ]
    pieces += ["quick", "the", "don", "##on", "##ck", "n't", "'s", "do", "not", "ete", "été", "##ll"]
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    model = {
        "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 12,
        "vocab": {one: number for number, one in enumerate(pieces)},
    }  # fmt: skip
    return {
        "version": "1.0",
        "added_tokens": [_special(number, one) for number, one in enumerate(pieces[:4])],
        "normalizer": {**normalizer, "lowercase": lowercase},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": cleanup},
        "model": model,
    }


def _special(number: int, content: str) -> dict[str, object]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": content, **flags}


KINDS: Mapping[str, Callable[[], Mapping[str, object]]] = {
    "bert": bert, "bert_cased": lambda: bert(lowercase=False, cleanup=False),
    "qwen": byte_pairs, "gpt2": lambda: gpt2(prefix=False), "roberta": roberta, "llama3": llama3, "digits": digits,
    "codes": codes, "characters": characters, "words": words, "llama2": llama2, "mistral": mistral, "gemma": gemma,
    "spaces": spaces, "marks": lambda: marks("always"), "no_first_mark": lambda: marks("never"),
}  # fmt: skip


@pytest.fixture(scope="session")
def of_json(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine that copies, whose tokenizer.json is to be replaced."""
    folder = tmp_path_factory.mktemp("json") / "engine"
    make_engine(folder, copy_model())
    (folder / "tokenizer.model").unlink()
    return folder


def with_tokenizer(folder: Path, content: object, size: int = 400) -> Path:
    """Give the engine this tokenizer, for a vocabulary of this size."""
    kernel_library()
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    manifest = json.loads((folder / "engine.json").read_text())
    one = {**text_input(size), "tokenizer": "tokenizer.json"}
    write_manifest(folder, {**manifest, "inputs": {"source": one, "target": one}})
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_texts_are_those_of_the_package(of_json: Path, kind: str) -> None:
    size = 40 if kind == "codes" else 400
    other = CppEngine(with_tokenizer(of_json, KINDS[kind](), size), threads=1)
    vocabulary = JsonVocabulary(of_json / "tokenizer.json", size, SPECIAL)
    ours, draw = Tokenizer({"source": vocabulary}), random.Random(kind)
    for text in ["", *(odd_text(draw) for _ in range(60))]:
        ids = ours.encode("source", text)
        assert other.encode("source", text) == ids
        assert other.decode("source", ids) == ours.decode("source", ids)
        some = [draw.randrange(size) for _ in range(8)]
        assert other.decode("source", some) == ours.decode("source", some)
    other.close()


LOWERCASE = {"type": "Lowercase"}
SPLIT = {"type": "Split", "pattern": {"Regex": "[0-9]"}, "behavior": "Isolated", "invert": False}
METASPACE = metaspace("always", split=False)
GROWING = {"type": "Replace", "pattern": {"String": "a"}, "content": "aaa"}
GROWS = "replacements that make a text 100 times as long or more"
SAME = {"id": 9, "content": "<other>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


@pytest.mark.parametrize(
    ("changes", "lacks"),
    [
        ({"normalizer": LOWERCASE}, "the normalizer Lowercase"),
        ({"normalizer": {"type": "Sequence", "normalizers": [LOWERCASE]}}, "the normalizer Lowercase"),
        ({"normalizer": {"type": "Sequence", "normalizers": [GROWING] * 6}}, GROWS),
        ({"decoder": {"type": "Sequence", "decoders": [GROWING] * 6}}, GROWS),
        ({"pre_tokenizer": SPLIT}, "the pre_tokenizer Split with the pattern [0-9]"),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [METASPACE, METASPACE]}},
         "the pre_tokenizer Metaspace beside others"),
        ({"pre_tokenizer": {**AFTER, "behavior": "Isolated"}}, "the pre_tokenizer Split at a string"),
        ({"pre_tokenizer": {**SPLIT, "behavior": "Removed"}}, "the pre_tokenizer Split with behavior Removed"),
        ({"decoder": LOWERCASE}, "the decoder Lowercase"),
        ({"decoder": {"type": "Sequence", "decoders": [LOWERCASE]}}, "the decoder Lowercase in a Sequence"),
        ({"post_processor": LOWERCASE}, "the post_processor Lowercase"),
        ({"model__type": "Unigram"}, "a model of type Unigram"),
        ({"model__dropout": 0.1}, "merges that are left out at random (dropout)"),
        ({"model__type": "WordPiece", "model__max_input_chars_per_word": 1001, "model__unk_token": "<unk>"},
         "words of 1,001 characters (max_input_chars_per_word)"),
        ({"model__byte_fallback": True}, "a model with byte_fallback and without <0x00>"),
        ({"model__continuing_subword_prefix": "##"}, "a model with a continuing_subword_prefix"),
        ({"added_tokens": [{**SAME, "single_word": True}]}, "the added token <other>, which must be a single word"),
        ({"added_tokens": [SAME]}, "added tokens that contradict each other about <other>"),
    ],
)  # fmt: skip
def test_what_the_library_lacks_is_said_and_ids_run(of_json: Path, changes: dict[str, Any], lacks: str) -> None:
    engine = CppEngine(with_tokenizer(of_json, changed(**changes)), threads=1)
    message = f"this library does not read the tokenizer of copy: it has {lacks}"
    for call in (lambda: engine.translate(["a"]), lambda: engine.encode("source", "a")):
        with pytest.raises(UserError) as caught:
            call()
        assert caught.value.message == message and "or give token ids" in str(caught.value.hint)
    assert engine.search(np.array([[9, 3]]))[0][0].tokens == (9, 3)
    engine.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not a tokenizer.json: not JSON"),
        ("{", "not a tokenizer.json: not JSON"),
        ('{"model": "\\ud800"}', "not a tokenizer.json: not JSON"),
        ("[" * 100_000, "not a tokenizer.json: more than 100 levels"),
        ("[" + "1," * (1 << 23) + "1]", "not a tokenizer.json: more than 8,388,608 values"),
        ("[]", "not a tokenizer.json: the file must be an object"),
        ("{}", "not a tokenizer.json: model is missing"),
        (changed(model=1), "not a tokenizer.json: model.type is missing"),
        (changed(model__vocab=[]), "not a tokenizer.json: model.vocab must map pieces to ids"),
        (changed(model__vocab={"a": -1}), "not a tokenizer.json: model.vocab must be an id"),
        (changed(model__vocab={"a": 1 << 40}), "not a tokenizer.json: model.vocab must be an id"),
        (changed(model__unk_token="none"), "not a tokenizer.json: model.unk_token has 'none', which is no piece"),
        (changed(model__merges="a b"), "not a tokenizer.json: model.merges must be a list"),
        (changed(model__merges=["a"]), "not a tokenizer.json: model.merges must be pairs of pieces"),
        (changed(model__merges=[["a", "none"]]), "not a tokenizer.json: model.merges has 'none', which is no piece"),
        (changed(normalizer="NFC"), "not a tokenizer.json: normalizer.type is missing"),
        (
            changed(pre_tokenizer={**METASPACE, "replacement": "ab"}),
            "not a tokenizer.json: pre_tokenizer.replacement must be a character",
        ),
        (
            changed(pre_tokenizer={**METASPACE, "prepend_scheme": "last"}),
            "not a tokenizer.json: pre_tokenizer.prepend_scheme must be always, first or never",
        ),
        (changed(added_tokens=[{"id": 0}]), "not a tokenizer.json: added_tokens.content is missing"),
        (
            changed(post_processor={"type": "BertProcessing", "sep": ["a"], "cls": ["a", 1]}),
            "not a tokenizer.json: post_processor.sep must be a token and its id",
        ),
        (
            changed(post_processor={"type": "BertProcessing", "sep": ["a", 400], "cls": ["a", 1]}),
            "has the id 400; the engine's vocabulary has 400 tokens",
        ),
    ],
)
def test_damaged_files_are_one_error(of_json: Path, content: object, message: str) -> None:
    with pytest.raises(UserError) as caught:
        CppEngine(with_tokenizer(of_json, content), threads=1)
    assert caught.value.message == message and str(caught.value.place).endswith("tokenizer.json")


def test_a_vocabulary_that_is_too_small_is_refused_as_in_python(of_json: Path) -> None:
    with_tokenizer(of_json, byte_pairs(), 100)
    for load_vocabulary in (
        lambda: CppEngine(of_json, threads=1),
        lambda: JsonVocabulary(of_json / "tokenizer.json", 100, SPECIAL),
    ):
        with pytest.raises(UserError, match="has the id 270; the engine's vocabulary has 100 tokens"):
            load_vocabulary()


def test_a_template_that_python_cannot_use_is_refused(tmp_path: Path) -> None:
    lost = {"SpecialToken": {"id": "<lost>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": [lost, text], "pair": [], "special_tokens": {}}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(changed(post_processor=template)))
    with pytest.raises(UserError, match=r"not a tokenizer\.json"):
        JsonVocabulary(path, 400, SPECIAL)
    path.write_text(json.dumps({**roberta(), "post_processor": {**roberta()["post_processor"], "sep": ["</s>", 400]}}))
    with pytest.raises(UserError, match="has the id 400; the engine's vocabulary has 400 tokens"):
        JsonVocabulary(path, 400, SPECIAL)


@pytest.mark.parametrize("text", ["a", " ", "'", "\n ", "\u0301\u0323", "<", "ab1 "])
def test_long_runs_take_no_quadratic_time(of_json: Path, text: str) -> None:
    engine = CppEngine(with_tokenizer(of_json, byte_pairs()), threads=1)
    whole = text * (200_000 // len(text))
    marks = sorted(whole, key=unicodedata.combining) if unicodedata.combining(text[0]) else whole
    assert engine.decode("source", engine.encode("source", whole)) == "".join(marks)
    engine.close()


def test_a_normalizer_that_moves_words_gives_no_alignments(of_json: Path) -> None:
    shutil.copyfile(FOLDER / "aligned" / "alignments.onnx", of_json / "alignments.onnx")
    engine = CppEngine(with_tokenizer(of_json, bert()), threads=1)
    with pytest.raises(UserError, match="no alignments of texts with a BertNormalizer, which moves their words"):
        engine.align(["the quick"], ["the"])
    engine.close()
    (of_json / "alignments.onnx").unlink()


@pytest.mark.skipif(not TIMES, reason="takes long; LAWS=1 runs it, and so does writing the tables")
def test_the_tables_are_those_of_the_package() -> None:
    written = unicode_tables.TABLES.read_text()
    if tokenizers.__version__ not in written.splitlines()[0]:
        pytest.skip(f"the tables are of another version of tokenizers than {tokenizers.__version__}")
    assert unicode_tables.tables() == written
