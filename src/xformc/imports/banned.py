"""Tokens that the origin bans, penalises or forces, as settings of `decode`."""

from collections.abc import Mapping

from xformc.compiler.spec import Spec
from xformc.compiler.spec.sections import Sample
from xformc.compiler.spec.tree import Plain, Scalar

_NUMBERS: Mapping[str, float] = {"no_repeat_ngram_size": 0, "repetition_penalty": 1.0}
"""The settings that have the same name in both, and the value that changes nothing."""


PLACES, BEGUN = "forced_decoder_ids", "begin_suppress_tokens"
NAMED: Mapping[str, str] = {"languages": "lang_to_id", "tasks": "task_to_id"}
SILENT, LATEST = "no_timestamps_token_id", "max_initial_timestamp_index"
STEP = 0.02
"""The seconds between two timestamps of every Whisper."""


def banned(values: Mapping[str, Scalar]) -> dict[str, Plain]:
    """The settings that a config with nested keys joined by dots asks for.

    Words of `bad_words_ids` with several tokens are left out, and so are end tokens in it, as transformers does.
    """
    found: dict[str, Plain] = {}
    for name, nothing in _NUMBERS.items():
        value = values.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value != nothing:
            found[name] = type(nothing)(value)
    ends = {value for key, value in values.items() if key.partition(".")[0] == "eos_token_id"}
    words: dict[str, list[Scalar]] = {}
    for key, value in values.items():
        top, _, rest = key.partition(".")
        if top == "bad_words_ids":
            words.setdefault(rest.partition(".")[0], []).append(value)
    tokens = [
        value for key, value in values.items() if key.partition(".")[0] == "suppress_tokens" and value is not None
    ]
    tokens += [word[0] for word in words.values() if len(word) == 1 and word[0] is not None and word[0] not in ends]
    if tokens:
        found["suppress_tokens"] = list(dict.fromkeys(tokens))
    return found


def said_of(spec: Spec) -> dict[str, Scalar]:
    """What a config says of the tokens that a spec bans, penalises and needs: the inverse of the others here."""
    decode = spec.decode
    edits = decode.sample if spec.task == "language_model" else decode
    found: dict[str, Scalar] = {
        name: value for name, nothing in _NUMBERS.items() if (value := getattr(edits, name)) != nothing
    }
    found |= {f"suppress_tokens.{place}": token for place, token in enumerate(edits.suppress_tokens)}
    if spec.task == "language_model":
        most = decode.sample.max_new_tokens
        return found | ({} if most == Sample().max_new_tokens else {"max_new_tokens": most})
    found |= {f"{BEGUN}.{place}": token for place, token in enumerate(decode.suppress_first)}
    return found | ({"min_length": decode.min_length} if decode.min_length else {})


def shortest(values: Mapping[str, Scalar]) -> dict[str, Plain]:
    """The setting `min_length` of a config of a model that translates.

    Both count the end token of a text; transformers counts the token before the first one as well, but for
    `min_new_tokens`.
    """
    whole, new = (values.get(name) for name in ("min_length", "min_new_tokens"))
    least = max(whole if isinstance(whole, int) else 0, new + 1 if isinstance(new, int) and new > 0 else 0)
    return {"min_length": least} if least > 0 else {}


def banned_at_first(values: Mapping[str, Scalar]) -> dict[str, Plain]:
    """The setting `suppress_first` of a config with tokens that never begin a text, after its prefix."""
    tokens = [value for key, value in values.items() if key.partition(".")[0] == BEGUN and value is not None]
    return {"suppress_first": list(dict.fromkeys(tokens))} if tokens else {}


def spoken(values: Mapping[str, Scalar]) -> dict[str, Plain]:
    """The languages, tasks and timestamps of a model of speech, as settings of `decode.speech`."""
    found: dict[str, Plain] = {}
    for name, key in NAMED.items():
        names = {
            one.partition(".")[2].removeprefix("<|").removesuffix("|>"): token
            for one, token in values.items()
            if one.startswith(f"{key}.") and isinstance(token, int)
        }
        found |= {name: {**names}} if names else {}
    silent, latest, size = (values.get(name) for name in (SILENT, LATEST, "vocab_size"))
    own = ("eos_token_id", "decoder_start_token_id")
    special = [value for key, value in values.items() if key.partition(".")[0] in own and isinstance(value, int)]
    if isinstance(silent, int):
        found["no_timestamps"] = silent
        if isinstance(size, int) and max(special, default=0) <= silent < size - 1:
            count = latest if isinstance(latest, int) else size - silent
            found["timestamps"] = {"first": silent + 1, "step": STEP, "latest": round(count * STEP, 6)}
    return found


def forced(values: Mapping[str, Scalar]) -> dict[str, Plain]:
    """The setting `prefix` of a config whose texts are forced to begin with tokens, such as the tag of a language.

    `forced_decoder_ids` are pairs of a place and a token. They are a prefix if they are of the places from 1 on; where
    the model chooses one of the tokens itself, there is none.
    """
    pairs = sorted({key.rpartition(".")[0] for key in values if key.startswith(f"{PLACES}.")})
    places = {values.get(f"{pair}.0"): values.get(f"{pair}.1") for pair in pairs}
    begun = [places.get(place) for place in range(1, len(pairs) + 1)]
    wanted = begun or [values.get("forced_bos_token_id")]
    tokens = [token for token in wanted if isinstance(token, int) and not isinstance(token, bool)]
    return {"prefix": [*tokens]} if len(tokens) == len(wanted) else {}
