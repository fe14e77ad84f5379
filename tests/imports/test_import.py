"""An import has the weights of the folder under our paths, and says everything that does not fit at once."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import CommandLine, listing, mistake
from safetensors.numpy import load_file
from safetensors.torch import save_file as save_tensors

from tests.imports.foreign import FAMILIES, GPT2, LLAMA, ROUNDED, save, write_config, write_foreign
from xformc.compiler.spec import load_spec
from xformc.imports.family import shipped_families

CONFIGS = [
    *FAMILIES.values(),
    {**GPT2, "activation_function": "relu", "tie_word_embeddings": False, "n_inner": 24},
    {**LLAMA, "tie_word_embeddings": True, "attention_bias": True, "head_dim": 6},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a GPT-2, to be changed."""
    write_foreign(tmp_path / "model", GPT2)
    return tmp_path / "model"


def refused(xformc: CommandLine, folder: Path, *options: str | Path) -> str:
    """The message of an import that must be refused and must leave nothing behind."""
    before = listing(folder.parent)
    found = mistake(xformc("import", folder, "-o", folder.parent / "run", *options))
    assert listing(folder.parent) == before
    return found


def test_every_shipped_family_is_tested_and_on_its_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "import.md").read_text(encoding="utf-8")
    assert FAMILIES.keys() == shipped_families().keys()
    assert [name for name in FAMILIES if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("config", CONFIGS)
def test_an_import_has_every_weight_under_its_path(xformc: CommandLine, tmp_path: Path, config: dict) -> None:
    ours = write_foreign(tmp_path / "model", config)
    result = xformc("import", tmp_path / "model", "-o", tmp_path / "run")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"{tmp_path / 'run'}: a run of the family {config['model_type']}, ")
    found = load_file(tmp_path / "run" / "weights.safetensors")
    assert found.keys() == ours.keys()
    for path, array in ours.items():
        np.testing.assert_allclose(
            found[path], array, rtol=0, atol=1e-6 if config["model_type"].startswith(ROUNDED) else 0
        )
    assert len((tmp_path / "run" / "spec.yaml").read_text().splitlines()) < 80
    assert xformc("check", tmp_path / "run").code == 0


@pytest.mark.parametrize("name", ["gpt2", "marian"])
def test_an_import_bans_what_its_origin_bans(xformc: CommandLine, tmp_path: Path, name: str) -> None:
    write_foreign(tmp_path / "model", {**FAMILIES[name], "eos_token_id": 0})
    given = {"no_repeat_ngram_size": 3, "repetition_penalty": 1.2, "suppress_tokens": [7], "eos_token_id": 0}
    words = {"bad_words_ids": [[19], [5, 6], [0], [7]]}
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps({**given, **words}))
    assert xformc("import", tmp_path / "model", "-o", tmp_path / "run").code == 0
    decode = load_spec(tmp_path / "run" / "spec.yaml").decode
    section = decode.sample if name == "gpt2" else decode
    assert (section.no_repeat_ngram_size, section.repetition_penalty, section.suppress_tokens) == (3, 1.2, [7, 19])


@pytest.mark.parametrize(("said", "least"), [({"min_length": 9}, 9), ({"min_new_tokens": 6, "min_length": 2}, 7)])
def test_an_import_ends_no_text_before_its_origin_does(
    xformc: CommandLine, tmp_path: Path, said: dict, least: int
) -> None:
    write_foreign(tmp_path / "model", FAMILIES["marian"])
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(said))
    assert xformc("import", tmp_path / "model", "-o", tmp_path / "run").code == 0
    assert load_spec(tmp_path / "run" / "spec.yaml").decode.min_length == least


@pytest.mark.parametrize(("said", "limit"), [({"max_length": 30}, 29), ({"max_new_tokens": 6, "max_length": 30}, 6)])
def test_a_limit_of_new_tokens_wins(xformc: CommandLine, tmp_path: Path, said: dict, limit: int) -> None:
    write_foreign(tmp_path / "model", FAMILIES["bart"])
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps({**said, "guidance_scale": 2, "min_p": None}))
    result = xformc("import", tmp_path / "model", "-o", tmp_path / "run")
    assert "\n  without the origin's guidance_scale, which would change its texts\n" in result.out
    assert load_spec(tmp_path / "run" / "spec.yaml").decode.max_length.offset == limit


def test_a_language_model_has_the_limit_of_its_origin(xformc: CommandLine, folder: Path, tmp_path: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"max_new_tokens": 7, "do_sample": True}))
    assert "without the origin's" not in xformc("import", folder, "-o", tmp_path / "run").out
    assert load_spec(tmp_path / "run" / "spec.yaml").decode.sample.max_new_tokens == 7


@pytest.mark.parametrize(("said", "prefix"), [({}, []), ({"force_bos_token_to_be_generated": True}, [0])])
def test_configs_of_old_libraries_are_read(xformc: CommandLine, tmp_path: Path, said: dict, prefix: list[int]) -> None:
    write_foreign(
        tmp_path / "model",
        {**FAMILIES["bart"], "bos_token_id": 0, "output_past": True, "save_step": 4, "prefix": " ", **said},
    )
    assert xformc("import", tmp_path / "model", "-o", tmp_path / "run").code == 0
    assert load_spec(tmp_path / "run" / "spec.yaml").decode.prefix == prefix


def test_positions_that_pegasus_never_had_are_read_over(xformc: CommandLine, tmp_path: Path) -> None:
    write_foreign(tmp_path / "model", {**FAMILIES["pegasus"], "extra_pos_embeddings": 1})
    assert xformc("import", tmp_path / "model", "-o", tmp_path / "run").code == 0


@pytest.mark.parametrize(("cap", "score"), [(None, "otherwise"), ("absent", "capped")])
def test_null_is_a_value_where_the_table_has_it(
    xformc: CommandLine, tmp_path: Path, cap: str | None, score: str
) -> None:
    config = {key: value for key, value in FAMILIES["gemma2"].items() if key != "attn_logit_softcapping"}
    write_foreign(tmp_path / "model", config if cap else {**config, "attn_logit_softcapping": None})
    assert xformc("import", tmp_path / "model", "-o", tmp_path / "run").code == 0
    assert f"score: {score}" in (tmp_path / "run" / "spec.yaml").read_text()


def test_an_import_is_built_without_a_tokenizer(xformc: CommandLine, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"of another model")
    xformc("import", folder, "-o", tmp_path / "run")
    result = xformc("build", tmp_path / "run", "-o", tmp_path / "engine", "--target", "portable")
    assert (result.code, result.err) == (0, "")
    assert not (tmp_path / "engine" / "tokenizer.model").exists()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_shards_of_half_precision_become_float32(
    xformc: CommandLine, folder: Path, tmp_path: Path, kind: torch.dtype
) -> None:
    stored = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = {name: f"model-{index % 2}.safetensors" for index, name in enumerate(stored)}
    for file in set(names.values()):
        shard = {f"transformer.{name}": torch.tensor(stored[name]).to(kind) for name in stored if names[name] == file}
        save_tensors(shard, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert xformc("import", folder, "-o", tmp_path / "run").code == 0
    found = load_file(tmp_path / "run" / "weights.safetensors")["decoder/embedding/weight"]
    np.testing.assert_array_equal(found, torch.tensor(stored["wte.weight"]).to(kind).float().numpy())


def test_everything_that_a_config_asks_and_a_table_lacks_is_named(xformc: CommandLine, tmp_path: Path) -> None:
    config = {**LLAMA, "hidden_act": "swish2", "mlp_bias": True, "quantization_config": {"bits": 4}, "hidden_size": "x"}
    config |= {"architectures": ["LlamaForTokenClassification"], "rope_scaling": {"type": "dynamic", "factor": 2.0}}
    del config["num_hidden_layers"]
    found = refused(xformc, write_config(tmp_path / "model", config))
    for line in (
        "architectures: LlamaForTokenClassification must be 'LlamaForCausalLM' or 'LlamaModel'",
        "hidden_act: swish2 must be 'silu', 'relu' or 'gelu'",
        "mlp_bias: true must be 'false'",
        "quantization_config.bits: 4 is not in the table of llama",
        "rope_parameters.rope_type: dynamic must be 'default', 'linear', 'llama3' or 'yarn'",
        "rope_parameters.factor: 2.0 is not in the table of llama",
        "num_hidden_layers must be a number, found null",
        'hidden_size must be a number, found "x"',
    ):
        assert f"\n  {line}\n" in found


def test_a_key_that_differs_from_another_names_it(xformc: CommandLine, tmp_path: Path) -> None:
    config = {"decoder_attention_heads": 4, **FAMILIES["marian"], "encoder_attention_heads": 8}
    found = refused(xformc, write_config(tmp_path / "model", config))
    assert "\n  encoder_attention_heads: 8 differs from decoder_attention_heads\n" in found


def test_missing_surplus_and_wrong_weights_are_named_at_once(xformc: CommandLine, folder: Path) -> None:
    arrays = load_file(folder / "model.safetensors")
    arrays["wte.weight"] = arrays["wte.weight"][:-1]
    arrays["h.1.ln_1.bias"] = arrays["h.1.ln_1.bias"].astype(np.int32)
    arrays["adapter.weight"] = arrays.pop("ln_f.bias")
    save(folder, arrays)
    found = refused(xformc, folder)
    assert "\n  missing: ln_f.bias\n" in found
    assert "\n  left over: adapter.weight\n" in found
    assert "\n  wrong shape: wte.weight (found [19, 8], decoder/embedding/weight is [20, 8])\n" in found
    assert "\n  not of F64, F32, F16, BF16: h.1.ln_1.bias (I32)" in found


def test_a_copy_of_a_tied_weight_may_be_stored(xformc: CommandLine, folder: Path, tmp_path: Path) -> None:
    arrays = load_file(folder / "model.safetensors")
    save(folder, {**arrays, "lm_head.weight": arrays["wte.weight"]})
    assert xformc("import", folder, "-o", tmp_path / "run").code == 0
    assert "logits/weight" not in load_file(tmp_path / "run" / "weights.safetensors")


@pytest.mark.parametrize(("name", "embedding", "path"), [
    ("gpt2", "wte.weight", "decoder/embedding/weight"),
    ("t5", "shared.weight", "encoder/embed/embedding/weight"),
])  # fmt: skip
def test_a_weight_that_is_no_copy_is_not_tied(
    xformc: CommandLine, tmp_path: Path, name: str, embedding: str, path: str
) -> None:
    write_foreign(tmp_path / "model", FAMILIES[name])
    arrays = load_file(tmp_path / "model" / "model.safetensors")
    save(tmp_path / "model", {**arrays, "lm_head.weight": 2 * arrays[embedding]})
    assert xformc("import", tmp_path / "model", "-o", tmp_path / "run").code == 0
    found = load_file(tmp_path / "run" / "weights.safetensors")
    np.testing.assert_array_equal(found["logits/weight"], 2 * found[path])


@pytest.mark.parametrize("name", ["encoder.embed_tokens.weight", "lm_head.weight"])
def test_a_weight_that_must_be_a_copy_is_compared(xformc: CommandLine, tmp_path: Path, name: str) -> None:
    write_foreign(tmp_path / "model", FAMILIES["marian"])
    arrays = load_file(tmp_path / "model" / "model.safetensors")
    save(tmp_path / "model", {**arrays, f"model.{name}" if "embed" in name else name: 2 * arrays["shared.weight"]})
    found = refused(xformc, tmp_path / "model")
    assert f"\n  no copy of the weight that it is tied to: {name}" in found


def test_weights_that_are_no_numbers_are_a_mistake(xformc: CommandLine, folder: Path) -> None:
    arrays = load_file(folder / "model.safetensors")
    arrays["ln_f.bias"] = arrays["ln_f.bias"] * np.float32("nan")
    save(folder, arrays)
    assert "not finite: ln_f.bias" in refused(xformc, folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../secret.safetensors", "names '../secret.safetensors', which is no safetensors file of the folder"),
        ("/etc/passwd", "which is no safetensors file of the folder"),
        ("weights.bin", "which is no safetensors file of the folder"),
        ("gone.safetensors", "names files that are not there: gone.safetensors"),
        (7, "has no weight_map from names to files"),
    ],
)
def test_an_index_names_files_of_its_folder(xformc: CommandLine, folder: Path, name: object, message: str) -> None:
    (folder / "model.safetensors").rename(folder.parent / "secret.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"wte.weight": name}}))
    assert message in refused(xformc, folder)


def test_a_pickle_is_not_read(xformc: CommandLine, folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "has neither model.safetensors nor model.safetensors.index.json" in refused(xformc, folder)


def test_a_folder_without_a_config_is_a_mistake(xformc: CommandLine, folder: Path, tmp_path: Path) -> None:
    assert "gone: no such file or folder" in refused(xformc, tmp_path / "gone")
    (folder / "config.json").unlink()
    assert "has no config.json" in refused(xformc, folder)


def test_an_unknown_family_is_a_mistake(xformc: CommandLine, tmp_path: Path) -> None:
    found = refused(xformc, write_config(tmp_path / "model", {"model_type": "gpt3"}))
    assert "there is no table of the family 'gpt3'; shipped are " in found


def test_a_run_is_not_replaced(xformc: CommandLine, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "kept").touch()
    assert "run: already exists" in refused(xformc, folder)


def test_a_table_of_ones_own_may_be_like_a_shipped_one(xformc: CommandLine, folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "mine.yaml"
    table.write_text("like: gpt2\n")
    write_config(folder, {**GPT2, "odd": 1, "model_type": "mine"})
    assert "\n  odd: 1 is not in the table of mine\n" in refused(xformc, folder, "--map", table)
    table.write_text("like: gpt2\nignored: [odd]\n")
    result = xformc("import", folder, "-o", tmp_path / "run", "--map", table)
    assert result.out.startswith(f"{tmp_path / 'run'}: a run of the family mine, ")


def test_null_takes_away_what_another_table_says(xformc: CommandLine, folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "mine.yaml"
    table.write_text("like: gpt2\nspec: {defaults: {layer_norm: null, gelu: {approximate: none}}, decode: null}\n")
    assert xformc("import", folder, "-o", tmp_path / "run", "--map", table).code == 0
    spec = (tmp_path / "run" / "spec.yaml").read_text()
    assert "gelu" in spec and "layer_norm" not in spec and "decode" not in spec


def test_a_row_may_name_several_weights(xformc: CommandLine, tmp_path: Path) -> None:
    write_foreign(tmp_path / "model", FAMILIES["gpt_neox"])
    arrays = load_file(tmp_path / "model" / "model.safetensors")
    arrays["lm_head.weight"] = arrays.pop("embed_out.weight")
    save(tmp_path / "model", arrays)
    assert xformc("import", tmp_path / "model", "-o", tmp_path / "run").code == 0


def test_each_layer_of_a_list_is_checked(xformc: CommandLine, tmp_path: Path) -> None:
    config = {**FAMILIES["qwen2"], "layer_types": ["full_attention", "sliding_attention"]}
    found = refused(xformc, write_config(tmp_path / "model", config))
    assert "\n  layer_types.1: sliding_attention must be 'full_attention'\n" in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("like: gtp2", "'like' must name a shipped family"),
        ("like: gpt2\nrenames: {a: b}", "mine.yaml:2:1: 'renames' must be"),
        ("like: gpt2\nweights: {logits/weight: {form: x}}", "'form' must be"),
        ("like: gpt2\nweights: [a]", "'weights' must be a mapping, found a list"),
        ("like: gpt2\nignored: n_ctx", "'ignored' must be a list of names, found 'n_ctx'"),
        ("like: gpt2\ncases: {n_layer: 2}", "a case must be a mapping from values, found 2"),
        ("like: gpt2\ncases: {n_layer: {2: {cases: {a: 3}}}}", "a case must be a mapping from values, found 3"),
        ("like: gpt2\ncases: {n_layer: {2: {tie: a}}}", "'tie' must be a list of groups, found 'a'"),
        ("weights: {}", "a family needs 'spec'"),
        ("[a]", "a family must be a mapping, found a list"),
        ("like: gpt2\ndefaults: {n_inner: $n_inner * 2}", "the default of n_inner depends on itself"),
        ("like: gpt2\ndefaults: {n_inner: $n_embd * }", "has no value"),
        ("like: gpt2\ndefaults: {n_inner: 4 * n_embd + $n_embd}", "'n_embd' is not a number; write $ before a key"),
        ("like: gpt2\nweights: {decoder/final_norm/gain: {from: ln_f.weight, rows: [1]}}", "'rows' must be two whole"),
        ("like: gpt2\nweights: {decoder/final_norm/gain: {from: ln_f.weight, plus: x}}", "'plus' must be a number"),
        (
            "like: gpt2\nweights: {decoder/final_norm/gain: {from: ln_f.weight, axes: [0, 2]}}",
            "'axes' must name each axis",
        ),
        ("like: gpt2\nspec: {sizes: {d_model: $n_embd - 1}}", "asks for a model that cannot be:"),
    ],
)
def test_a_wrong_table_is_a_mistake_with_its_place(
    xformc: CommandLine, folder: Path, tmp_path: Path, text: str, message: str
) -> None:
    table = tmp_path / "mine.yaml"
    table.write_text(text)
    assert message in refused(xformc, folder, "--map", table)


VALUES = [None, True, -1, 0, 2**70, 1e300, float("nan"), "", "x" * 1000, [], {}, [1, [2]], {"a": {"b": 3}}, 0.5]


@pytest.mark.parametrize("config", [GPT2, LLAMA, FAMILIES["wav2vec2"]], ids=["gpt2", "llama", "wav2vec2"])
def test_a_mutated_config_ends_in_one_error_or_an_import(xformc: CommandLine, tmp_path: Path, config: dict) -> None:
    draw = np.random.default_rng(0)
    write_foreign(tmp_path / "model", config)
    keys = [*config, "architectures", "rope_parameters", "tie_word_embeddings"]
    for turn in range(30):
        changed = {str(draw.choice(keys)): VALUES[int(draw.integers(len(VALUES)))] for _ in range(1 + turn % 3)}
        write_config(tmp_path / "model", {**config, **changed})
        out = tmp_path / f"run{turn}"
        result = xformc("import", tmp_path / "model", "-o", out)
        if result.code == 0:
            assert out.is_dir(), changed
        else:
            assert mistake(result), changed
            assert not out.exists()
    assert not list(tmp_path.glob(".*"))


def test_a_mutated_header_ends_in_one_error_or_an_import(xformc: CommandLine, folder: Path, tmp_path: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    draw = np.random.default_rng(0)
    mutants = [whole[:cut] for cut in (0, 7, 8, 100, size, len(whole) - 1)]
    mutants += [(1 << 60).to_bytes(8, "little") + whole[8:], whole + b"more"]
    for _ in range(30):
        place, byte = int(draw.integers(8 + size)), int(draw.integers(256))
        mutants.append(whole[:place] + bytes([byte]) + whole[place + 1 :])
    for index, mutant in enumerate(mutants):
        path.write_bytes(mutant)
        out = tmp_path / f"run{index}"
        result = xformc("import", folder, "-o", out)
        assert result.code == 0 or mistake(result)
        assert out.exists() == (result.code == 0)
        assert result.code == 2 or index > 8


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"model_type": 7}', "[" * 100_000, "\xff", '{"a": 1' + " " * (1 << 20)]
)
def test_a_config_that_is_none_is_a_mistake(xformc: CommandLine, folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text, encoding="latin-1")
    assert "config.json: " in refused(xformc, folder)
