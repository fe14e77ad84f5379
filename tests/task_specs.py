"""A small spec of each task, and of each kind of input."""

from pathlib import Path

from xformc.compiler.spec import Spec, load_spec

CHOICES = "choices: {norm: post, positions: sinusoidal, activation: relu}\n"
SIZES = "d_model: 8, d_ff: 12, heads: 2, d_k: 4, d_v: 4, dropout: 0.1"
LAYER = "{sublayer: self_attention}, {sublayer: feed_forward}"

LANGUAGE_MODEL = f"""\
task: language_model
sizes: {{{SIZES}, vocabulary: 80}}
{CHOICES}inputs: {{text: {{tokens: vocabulary}}}}
model:
  decoder: {{from: text, do: [embed, {{sublayer: causal_self_attention}}, {{sublayer: feed_forward}}]}}
  logits: {{from: decoder, do: [linear: {{to: vocabulary}}]}}
decode: {{sample: {{temperature: 0.8, max_new_tokens: 20}}}}
"""

TAGGING = f"""\
task: tagging
sizes: {{{SIZES}, vocabulary: 80, labels: 5}}
{CHOICES}inputs: {{words: {{tokens: vocabulary}}}}
model:
  encoder: {{from: words, do: [embed, {LAYER}]}}
  logits: {{from: encoder, do: [linear: {{to: labels}}]}}
train: {{tokenizer: {{kind: word}}}}
"""

PAIRS = """\
task: classification
sizes: {d_model: 8, vocabulary: 80, labels: 3}
inputs: {premise: {tokens: vocabulary}, claim: {tokens: vocabulary}}
model:
  first: {from: premise, do: [embedding: d_model, mean]}
  second: {from: claim, do: [embedding: d_model, mean]}
  logits: {from: first, do: [add: {do: [linear: {from: second, to: d_model}]}, tanh, {linear: {to: labels}}]}
"""

FRAMES = f"""\
task: tagging
sizes: {{{SIZES}, features: 6, labels: 3}}
{CHOICES}inputs: {{frames: {{vectors: features}}}}
model:
  encoder: {{from: frames, do: [linear: {{to: d_model}}, add_positions, {LAYER}]}}
  logits: {{from: encoder, do: [linear: {{to: labels}}]}}
"""

IMAGES = """\
task: classification
sizes: {d_model: 8, height: 3, width: 2, channels: 3, labels: 4}
inputs: {image: {values: [height, width, channels]}}
model:
  hidden: {from: image, do: [linear: {over: [height, width, channels], to: d_model}, relu]}
  logits: {from: hidden, do: [linear: {to: labels}]}
"""

GRAPH = """\
task: tagging
sizes: {d_model: 8, vocabulary: 12, labels: 3}
inputs: {nodes: {tokens: vocabulary}, links: {edges: nodes}}
model:
  states: {from: nodes, do: [embedding: d_model, {residual: {neighbours: {links: links}}}]}
  logits: {from: states, do: [linear: {to: labels}]}
blocks:
  neighbours:
    takes: {links: value}
    do:
      keys: as_keys
      scores: {contract: {from: x, by: keys, over: d_model}}
      seen: {mask: {edges: links}}
      weights: {softmax: keys}
      mixed: {contract: {by: keys, over: keys}}
"""

SPECS = {"language_model": LANGUAGE_MODEL, "tagging": TAGGING, "frames": FRAMES, "images": IMAGES, "graph": GRAPH}

CAPTIONS = """\
sizes: {d_model: 8, height: 3, width: 2, vocabulary: 12, one: 1, topics: 2, rate: 0.1}
inputs: {image: {values: [height, width]}, hints: {tokens: vocabulary}, caption: {tokens: vocabulary}}
results:
  caption: {text: logits}
  brightness: {numbers: bright}
  topics: {labels: topical, several: true}
model:
  sight: {from: image, do: [linear: {over: [height, width], to: d_model}, tanh, {auxiliary_loss: rate}]}
  hinted: {from: hints, do: [embedding: d_model, mean, {plus: sight}]}
  bright: {from: sight, do: [linear: one]}
  topical: {from: hinted, do: [linear: topics]}
  states: {from: caption, do: [embedding: d_model, {gru_from: {start: hinted}}]}
  logits: {from: states, do: [linear: vocabulary]}
decode: {beam_size: 2, max_length: {offset: 3}}
train: {max_length: 20, losses: {topics: {weight: 0.5}, brightness: {error: absolute}}}
"""

HEADS = """\
sizes: {d_model: 8, features: 3, vocabulary: 12, tags: 3, letters: 6, layers: 2}
inputs: {words: {tokens: vocabulary}, kinds: {tokens: vocabulary, along: words}, frames: {vectors: features},
  links: {edges: words}}
results:
  tags: {labels: tagged, each: token}
  meaning: {vectors: pooled, normalize: true}
  said: {ctc: spoken, beam_size: 2}
model:
  kind: {from: kinds, do: [embedding: d_model]}
  states:
    from: words
    do:
      start: {embedding: d_model}
      typed: {plus: kind}
      layers: {repeat: layers, index: turn, do: [{scale: 1 / (turn + 1)}, {linear: d_model}, {near: {links: links}}]}
  heard:
    from: frames
    do: [{name: start, linear: d_model}, {repeat: layers, shared: true, do: [{linear: d_model}, tanh]}]
  sum: {from: heard, do: [mean]}
  tagged: {from: states, do: [linear: tags]}
  pooled: {from: states, do: [mean, {plus: sum}]}
  spoken: {from: heard, do: [linear: letters]}
blocks:
  near:
    takes: {links: value}
    do: {keys: as_keys, scores: {contract: {from: x, by: keys, over: d_model}}, masked: {mask: {edges: links}},
      share: {softmax: keys}, mixed: {contract: {by: keys, over: keys}}}
train: {losses: {meaning: {temperature: 0.1, weight: 2}}}
"""

MASKED = """\
sizes: {d_model: 8, vocabulary: 20}
inputs: {text: {tokens: vocabulary}}
results: {tokens: {labels: logits, each: token}}
model: {logits: {from: text, do: [embedding: d_model, {linear: {to: vocabulary, initial: {normal: 0.02}}}]}}
initial: {default: {normal: 0.02}}
defaults: {linear: {bias: false}}
train: {objective: {masked: {rate: 0.2, copies: 2}}, freeze: [logits/embedding]}
"""

DECLARED = {"captions": CAPTIONS, "heads": HEADS, "masked": MASKED}


def write_task(folder: Path, name: str) -> Spec:
    """The spec of this name, written to a file of `folder`."""
    path = folder / f"{name}.yaml"
    path.write_text(SPECS[name], encoding="utf-8")
    return load_spec(path)
