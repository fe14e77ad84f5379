"""The models of language models in the conformance cases, and the options that edit the scores of tokens."""

# The options that edit the scores of tokens: as inputs of a model, and there as a whole number, which is 0 by default.
# The tokens that are suppressed are added up.
EDIT_DEFAULTS = {
    "no_repeat_ngram_size": 0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
}  # fmt: skip
EDIT_INPUTS = (
    "int64[banned] suppress_tokens, int64 no_repeat_ngram_size, float repetition_penalty, float presence_penalty, "
    "float frequency_penalty, "
)
EDITED = """\
  edit_1 = ReduceSum <keepdims = 0> (suppress_tokens)
  edit_2 = Add (edit_1, no_repeat_ngram_size)
  edit_3 = Sub (repetition_penalty, unit)
  edit_4 = Add (edit_3, presence_penalty)
  edit_5 = Add (edit_4, frequency_penalty)
  edit_6 = Cast <to = 7> (edit_5)
  edits = Add (edit_2, edit_6)
"""

# The continuation of a prompt counts on from the sum of its ids and its seed; its score is what the options say.
GENERATE = """\
<ir_version: 10, opset_import: ["" : 23]>
generate (int64[batch, prompt] prompt, int64[batch] seed, int64 max_new_tokens, float temperature, int64 top_k,
          float top_p) => (int64[batch, length] tokens, int64[batch] lengths, float[batch] scores)
<int64[1] last = {1}, int64[1] first = {0}, int64 zero = {0}, int64 one = {1}, int64 special = {4}, int64 end = {3},
 int64 vocabulary = {36}, float none = {0}>
{
  sum = ReduceSum <keepdims = 1> (prompt, last)
  seed_2 = Unsqueeze (seed, last)
  start = Add (sum, seed_2)
  counted = Range (zero, max_new_tokens, one)
  all = Add (start, counted)
  within = Mod (all, vocabulary)
  written = Add (within, special)
  final = Sub (max_new_tokens, one)
  is_final = Equal (counted, final)
  tokens = Where (is_final, end, written)
  rows = Squeeze (sum, last)
  nothing = Mul (rows, zero)
  lengths = Add (nothing, max_new_tokens)
  k = Cast <to = 1> (top_k)
  hot = Sub (none, temperature)
  with_k = Sub (hot, k)
  with_p = Sub (with_k, top_p)
  shape = Cast <to = 1> (nothing)
  scores = Add (shape, with_p)
}
"""

# As the continuations of prompts, with edits, which count as the seed does. The two models after it write the same text
# a few tokens at a time.
TALES = (
    GENERATE.replace("generate (", f"tales ({EDIT_INPUTS}")
    .replace("<int64[1] last", "<float unit = {1}, int64[1] last")
    .replace("{\n  sum =", f"{{\n{EDITED}  sum_1 =")
    .replace("  seed_2 =", "  sum = Add (sum_1, edits)\n  seed_2 =")
)
PROMPT_OF_TALES = """\
<ir_version: 10, opset_import: ["" : 23]>
prompt (int64[batch, length] prompt, int64 max_new_tokens)
  => (int64 step_at, int64 step_positions, bool[batch] step_done, int64[batch] step_sum)
<int64[1] last = {1}, int64 zero = {0}>
{
  step_sum = ReduceSum <keepdims = 0> (prompt, last)
  step_at = Identity (zero)
  step_positions = Identity (max_new_tokens)
  nothing = Mul (step_sum, zero)
  none = Cast <to = 9> (nothing)
  step_done = Identity (none)
}
"""
CONTINUE_OF_TALES = f"""\
<ir_version: 10, opset_import: ["" : 23]>
continue ({EDIT_INPUTS}int64[batch] seed, int64 max_new_tokens, float temperature, int64 top_k, float top_p,
          int64 count, int64 step_at, int64 step_positions, bool[batch] step_done, int64[batch] step_sum)
  => (int64[steps, batch] tokens, int64 step_at_next, bool[batch] step_done_next, float[batch] step_scores_next)
<int64[1] first = {{0}}, int64[1] last = {{1}}, int64 one = {{1}}, int64 special = {{4}}, int64 end = {{3}},
 int64 vocabulary = {{36}}, float none = {{0}}, float unit = {{1}}, int64 zero = {{0}}>
{{
{EDITED}  until = Add (step_at, count)
  step_at_next = Min (until, step_positions)
  counted = Range (step_at, step_at_next, one)
  sum = Add (step_sum, edits)
  start = Add (sum, seed)
  start_2 = Unsqueeze (start, first)
  steps = Unsqueeze (counted, last)
  all = Add (start_2, steps)
  within = Mod (all, vocabulary)
  written = Add (within, special)
  final = Sub (max_new_tokens, one)
  is_final = Equal (steps, final)
  tokens = Where (is_final, end, written)
  ended = Equal (step_at_next, max_new_tokens)
  step_done_next = Or (step_done, ended)
  k = Cast <to = 1> (top_k)
  hot = Sub (none, temperature)
  with_k = Sub (hot, k)
  with_p = Sub (with_k, top_p)
  nothing = Mul (start, zero)
  shape = Cast <to = 1> (nothing)
  step_scores_next = Add (shape, with_p)
}}
"""
