"""Imported tokenizers cut texts as the origin's do."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from command_line import CommandLine, mistake

from tests.imports.foreign import FAMILIES, write_foreign
from tests.runtime.kernel_session import kernel_library
from xformc.errors import UserError
from xformc.exports.sentencepiece_json import tokenizer_json
from xformc.format.tokens import SpecialTokens
from xformc.imports.replay_texts import replay_texts
from xformc.imports.sentencepieces import find_spiece, find_tagged
from xformc.runtime.checks.agreement import compare_runtimes
from xformc.runtime.engine import load
from xformc.runtime.libxformc import CppEngine
from xformc.runtime.text.json_vocabulary import JsonVocabulary
from xformc.runtime.text.sentencepiece_vocabulary import SentencePieceVocabulary

tokenizers: Any = pytest.importorskip("tokenizers")
transformers: Any = pytest.importorskip("transformers")

SENTENCES = [
    "the quick brown fox jumps over the lazy dog", "der schnelle braune Fuchs springt über den faulen Hund",
    "one two three four five six seven eight nine ten", "ein Haus am See, zwei Häuser im Wald",
] * 8  # fmt: skip
TEXTS = [
    "the dog", "über Häuser", "  two  spaces ", "", "日本語 and ελληνικά", "a\tb\nc", "naïve café — “quotes”", "🙂🙃",
    "\u200bzero width", "Fuchs springt ninety-nine times", "ﬁ ligature \u0301", "العربية ١٢٣",
]  # fmt: skip
LANGUAGE_MODEL = SpecialTokens(None, None, None, (0,))


def train_piece_model(path: Path, sentences: Sequence[str] = SENTENCES, **options: Any) -> Path:
    trainer: Any = sentencepiece.SentencePieceTrainer
    prefix, settings = str(path.with_suffix("")), {"vocab_size": 70, "hard_vocab_limit": False, **options}
    trainer.train(sentence_iterator=iter(sentences), model_prefix=prefix, minloglevel=2, **settings)
    path.with_suffix(".model").rename(path)
    return path


def write_byte_pairs(path: Path) -> Path:
    """A byte-level tokenizer as GPT-2's."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.save(str(path))
    return path


def write_marian(folder: Path) -> dict[str, int]:
    """Marian's three files; return the dictionary."""
    pieces: dict[str, int] = {"</s>": 0, "<unk>": 1}
    for file, size in (("source.spm", 70), ("target.spm", 60)):
        train_piece_model(folder / file, bos_id=-1, vocab_size=size)
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / file))
        for piece in sorted(model.id_to_piece(one) for one in range(model.get_piece_size())):
            pieces.setdefault(piece, len(pieces))
    pieces |= {">>fra<<": len(pieces), "<pad>": len(pieces) + 1}
    (folder / "vocab.json").write_text(json.dumps(pieces))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
    return pieces


@pytest.mark.filterwarnings("ignore")
def test_marians_dictionary_becomes_the_ids_of_its_models(xformc: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    pieces = write_marian(folder)
    size = len(pieces)
    write_foreign(folder, {**FAMILIES["marian"], "vocab_size": size, "pad_token_id": size - 1})
    result = xformc("import", folder, "-o", tmp_path / "run")
    assert result.code == 0 and "with source.model and target.model" in result.out
    assert xformc("build", tmp_path / "run", "-o", tmp_path / "engine").code == 0
    ours, theirs = load(tmp_path / "engine").tokenizer, transformers.MarianTokenizer.from_pretrained(str(folder))
    assert ours is not None
    assert replay_texts(folder, ours.vocabularies).line() == "the same tokens for 24 texts"
    for text in TEXTS:
        assert ours.encode("source", text) == theirs(text).input_ids
        ids = theirs(text_target=text).input_ids
        assert ours.encode("target", text) == ids
        if pieces["<unk>"] not in ids:
            assert ours.decode("target", ids) == theirs.decode(ids, skip_special_tokens=True)
    assert ours.encode("source", ">>fra<< the dog") == theirs(">>fra<< the dog").input_ids


def test_byte_pairs_round_trip_and_are_those_of_the_library(tmp_path: Path) -> None:
    path = write_byte_pairs(tmp_path / "tokenizer.json")
    ours, theirs = JsonVocabulary(path, 300, LANGUAGE_MODEL), tokenizers.Tokenizer.from_file(str(path))
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text).ids
        assert ours.decode(ours.encode(text)) == text
    assert ours.surround([5]) == [5, 0]
    assert ours.pieces([0, 299])[0] == "<|endoftext|>"
    with pytest.raises(UnicodeError):
        ours.encode("\ud800")


def test_a_tokenizer_that_transformers_changes_is_told(xformc: CommandLine, tmp_path: Path) -> None:
    """tokenizer_config.json, from which transformers builds its tokenizer, has the last word there."""
    folder = tmp_path / "model"
    folder.mkdir()
    write_byte_pairs(folder / "tokenizer.json")
    write_foreign(folder, {**FAMILIES["gpt2"], "vocab_size": 300, "n_positions": 64})
    settings = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    found = xformc("import", folder, "-o", tmp_path / "run", "--replay")
    assert found.code == 0 and "other tokens for 11 of 12 texts: 'The quick" in found.out, found


def test_a_template_says_what_surrounds_a_text(tmp_path: Path) -> None:
    path = write_byte_pairs(tmp_path / "tokenizer.json")
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    template = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B", special_tokens=[("<s>", 7), ("</s>", 8)]
    )
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = template
    tokenizer.enable_truncation(4)
    tokenizer.save(str(path))
    ours = JsonVocabulary(path, 400, LANGUAGE_MODEL)
    ids = ours.encode("one two three four five six")
    assert len(ids) > 4 and ours.surround(ids) == [7, *ids, 8]


def test_a_language_model_generates_text_with_an_imported_tokenizer(xformc: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_byte_pairs(folder / "tokenizer.json")
    write_foreign(folder, {**FAMILIES["gpt2"], "vocab_size": 300, "eos_token_id": [0, 7], "n_positions": 64})
    out = xformc("import", folder, "-o", tmp_path / "run", "--replay").out
    assert "with tokenizer.json" in out and "the same tokens for 12 texts" in out
    assert xformc("build", tmp_path / "run", "-o", tmp_path / "engine").code == 0
    engine = load(tmp_path / "engine", threads=1)
    assert engine.manifest.inputs["text"].special.end == (0, 7)
    (found,) = engine.generate(["line one\nline two"], max_new_tokens=8)
    assert found.tokens and isinstance(found.text, str)
    assert "an empty prompt" in mistake(xformc("generate", tmp_path / "engine", stdin="\n"))
    kernel_library()
    compared = compare_runtimes(tmp_path / "engine")
    assert compared.passed and any("prompts" in stage.what for stage in compared.stages)
    other = CppEngine(tmp_path / "engine", threads=1)
    pieces, ours = other.stream_tokens("ein Haus", max_new_tokens=8), engine.stream_tokens("ein Haus", max_new_tokens=8)
    assert list(pieces) == list(ours) and pieces.continuation == ours.continuation


def test_what_a_template_puts_before_a_text_is_not_scored(xformc: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    tokenizer = tokenizers.Tokenizer.from_file(str(write_byte_pairs(folder / "tokenizer.json")))
    tokenizer.add_special_tokens(["<s>"])
    begin = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", begin)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    write_foreign(folder, {**FAMILIES["llama"], "vocab_size": begin + 1, "bos_token_id": begin, "eos_token_id": 0})
    for command in (("import", folder, "-o", tmp_path / "run"), ("build", tmp_path / "run", "-o", tmp_path / "engine")):
        assert xformc(*command).code == 0
    with load(tmp_path / "engine", threads=1) as engine:
        for text in ("ein Haus", "one two three"):
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            (scored,), (expected,) = engine.score([text]), engine.score([[*ids, 0]])
            assert scored.tokens == (*ids, 0) and scored.score == expected.score
    (tmp_path / "one.txt").write_text("ein Haus\n")
    found = json.loads(xformc("evaluate", tmp_path / "engine", tmp_path / "one.txt", "--json").out)
    with load(tmp_path / "engine", threads=1) as engine:
        (one,) = engine.score(["ein Haus"])
    assert found["perplexity"] == pytest.approx(math.exp(-one.score / len(one.tokens)), rel=1e-5)


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer.model"])
def test_a_sentencepiece_model_is_preferred_and_sets_the_unknown_token(
    xformc: CommandLine, tmp_path: Path, file: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_byte_pairs(folder / "tokenizer.json")
    if file == "tokenizer.model":
        train_piece_model(folder / file, unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    write_foreign(folder, {**FAMILIES["llama"], "vocab_size": 300})
    result = xformc("import", folder, "-o", tmp_path / "run")
    assert result.code == 0 and f"with {file}" in result.out
    assert ("unknown: 0" in (tmp_path / "run" / "spec.yaml").read_text()) == (file == "tokenizer.model")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer.json", "{", "tokenizer.json: not a tokenizer.json"),
        ("tokenizer.json", None, "the id 299; the engine's vocabulary has 20 tokens"),
        ("vocab.json", "[]", "must map pieces to ids"),
        ("vocab.json", '{"<unk>": 0, "</s>": 0, "<pad>": 1}', "must map pieces to ids"),
        ("source.spm", "no model", "not a SentencePiece model"),
    ],
)
def test_broken_tokenizers_are_refused(
    xformc: CommandLine, tmp_path: Path, file: str, content: str | None, message: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    if file == "tokenizer.json":
        write_byte_pairs(folder / file)
    else:
        write_marian(folder)
    if content is not None:
        (folder / file).write_text(content)
    write_foreign(folder, FAMILIES["gpt2" if file == "tokenizer.json" else "marian"])
    assert message in mistake(xformc("import", folder, "-o", tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_pieces_of_a_foreign_model_are_its_own(tmp_path: Path) -> None:
    path = train_piece_model(tmp_path / "tokenizer.model", unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    ours = SentencePieceVocabulary(path, 100, SpecialTokens(None, 0, 1, (2,)))
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text)


def test_spaces_that_end_words_leave_no_trailing_blank(xformc: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    options: Any = {"treat_whitespace_as_suffix": True, "pad_id": -1}
    folder.mkdir()
    train_piece_model(folder / "tokenizer.model", unk_id=0, bos_id=1, eos_id=2, **options)
    write_foreign(folder, {**FAMILIES["llama"], "vocab_size": 100})
    assert xformc("import", folder, "-o", tmp_path / "run").code == 0
    assert xformc("build", tmp_path / "run", "-o", tmp_path / "engine", "--target", "portable").code == 0
    ours = load(tmp_path / "engine", threads=1).tokenizer
    assert ours is not None and ours.decode("text", ours.encode("text", "one two three")) == "one two three"
    kernel_library()
    other = CppEngine(tmp_path / "engine", threads=1)
    assert other.decode("text", other.encode("text", "one two three")) == "one two three"


MANY_SCRIPTS = ["ελληνικά και πάλι", "日本語の文章です", "русский текст и слова", "हिन्दी वाक्य", "العربية نص"]


def write_tagged(folder: Path, kind: str) -> tuple[Any, str]:
    """The SentencePiece files of a family, with transformers' own tokenizer of them and a tag of a language."""
    folder.mkdir()
    special = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1} if kind == "T5" else {}
    options = {"model_type": "unigram" if kind in ("T5", "MBart50") else "bpe", "vocab_size": 150, **special}
    name = "spiece.model" if kind == "T5" else "sentencepiece.bpe.model"
    path = train_piece_model(folder / name, sentences=SENTENCES + MANY_SCRIPTS, **options)
    settings: dict[str, Any] = {"tokenizer_class": f"{kind}Tokenizer"}
    if kind in ("M2M100", "Speech2Text"):
        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        names = ["<s>", "<pad>", "</s>", "<unk>", *(model.id_to_piece(one) for one in range(3, len(model)))]
        (folder / "vocab.json").write_text(json.dumps({name: one for one, name in enumerate(names)}))
    if kind == "Nllb":  # its class puts the mask before the tags, published models behind them
        settings |= {"extra_special_tokens": ["ace_Arab", "eng_Latn", "fra_Latn"], "mask_token": "ace_Arab"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    tag = {"T5": "", "Speech2Text": "", "MBart50": "fr_XX", "M2M100": "__fr__", "Nllb": "fra_Latn"}[kind]
    options = {"src_lang": tag.strip("_")} if tag else {}
    theirs = getattr(transformers, f"{kind}Tokenizer").from_pretrained(str(folder), **options)
    tags = sorted(
        getattr(theirs, "lang_token_to_id", getattr(theirs, "lang_code_to_id", {})).items(), key=lambda one: one[1]
    )
    if tags:
        (folder / "special_tokens_map.json").write_text(
            json.dumps({"additional_special_tokens": [name for name, _ in tags]})
        )
    return theirs, tag


@pytest.mark.parametrize("kind", ["T5", "MBart50", "M2M100", "Nllb", "Speech2Text"])
@pytest.mark.filterwarnings("ignore")
def test_sentencepiece_files_give_the_ids_of_transformers(tmp_path: Path, kind: str) -> None:
    theirs, tag = write_tagged(tmp_path / "model", kind)
    types = {"T5": "t5", "MBart50": "mbart", "Speech2Text": "speech_to_text"}
    values = {"model_type": types.get(kind, "m2m_100")}
    found = find_spiece(tmp_path / "model", values["model_type"]) or find_tagged(tmp_path / "model", values)
    assert found is not None and not found.lost
    found.write(tmp_path)
    special = SpecialTokens(0, 2, 0, (1,)) if kind == "T5" else SpecialTokens(1, 3, 2, (2,))
    ours = SentencePieceVocabulary(tmp_path / "tokenizer.model", 400, special)
    for text in [*TEXTS, *MANY_SCRIPTS]:
        assert ours.surround(ours.encode(f"{tag} {text}".strip())) == theirs(text.strip()).input_ids
    if tag:
        ids = ours.encode(f"{tag} the dog")
        assert ours.encode(tag) == ids[:1] == [theirs.convert_tokens_to_ids(tag)]
        assert ours.decode(ids) == "the dog", "a tag is no part of the text"
        assert ids[0] not in ours.encode(f"the {tag} dog"), "only a first word is a tag"
        assert ours.words(f"{tag} the dog")[0] == (0, 1) and ours.words(f"{tag} the dog")[-2] == (2, 3)
        exported = tokenizers.Tokenizer.from_str(tokenizer_json(tmp_path / "tokenizer.model", (), (2,)))
        assert exported.encode(f"{tag} the dog").ids == [*ids, 2]
        assert 2 not in ours.encode("</s> the") and 0 not in ours.encode("<s> the"), "other control pieces are text"


@pytest.mark.filterwarnings("ignore")
def test_the_tag_of_a_language_begins_texts_in_both_runtimes(xformc: CommandLine, tmp_path: Path) -> None:
    theirs, tag = write_tagged(tmp_path / "model", "M2M100")
    french, german = (theirs.convert_tokens_to_ids(name) for name in (tag, "__de__"))
    config = {**FAMILIES["m2m_100"], "vocab_size": 300, "forced_bos_token_id": french}
    write_foreign(tmp_path / "model", {**config, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2})
    result = xformc("import", tmp_path / "model", "-o", tmp_path / "run")
    assert result.code == 0 and "with tokenizer.model" in result.out, result.err
    kernel_library()
    assert xformc("build", tmp_path / "run", "-o", tmp_path / "engine").code == 0
    folder, text = tmp_path / "engine", "__en__ the dog"
    engine, other = load(folder, threads=1), CppEngine(folder, threads=1)
    ours, theirs.src_lang = engine.tokenizer, "en"
    assert ours is not None
    assert other.encode("source", text) == ours.encode("source", text) == theirs("the dog").input_ids
    asked = tuple(ours.encode_open("target", "__de__ ein"))
    assert asked[0] == german
    for options, begun in (({}, (french,)), ({"prefixes": ["__de__ ein"]}, asked)):
        given: Any = options
        [[found]] = engine.translate([text], **given)
        assert found.tokens[: len(begun)] == begun and "__" not in found.text
        assert other.translate([text], **given) == [[found]]


def test_sentencepiece_files_that_do_not_fit_are_refused_or_left(tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_text("no model")
    with pytest.raises(UserError, match="not a SentencePiece model"):
        find_spiece(tmp_path, "t5")
    assert find_spiece(tmp_path, "mbart") is None and find_tagged(tmp_path, {"model_type": "m2m_100"}) is None
    train_piece_model(tmp_path / "sentencepiece.bpe.model")
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text(json.dumps({"tokenizer_class": "MBartTokenizer"}))
    assert find_tagged(tmp_path, {"model_type": "mbart"}) is None, "the tag of mBART-25 follows a text"
    settings.write_text(json.dumps({"legacy_behaviour": True}))
    assert find_tagged(tmp_path, {"model_type": "m2m_100"}) is None
    settings.write_text(json.dumps({"extra_special_tokens": [{"content": "two words"}]}))
    with pytest.raises(UserError, match="must name at most 10,000 tags of languages, without spaces"):
        find_tagged(tmp_path, {"model_type": "m2m_100"})
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"")
    settings.unlink()
    with pytest.raises(UserError, match="not a SentencePiece model"):
        find_tagged(tmp_path, {"model_type": "m2m_100"})
