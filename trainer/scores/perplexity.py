"""The perplexity of a language model's engine, computed from its weights by the training graph in PyTorch.

The engine itself returns continuations, not the probabilities of a given text.
"""

from pathlib import Path

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.certify import engine_parameters
from xformc.compiler.pipeline import compile_training
from xformc.compiler.spec import load_spec
from xformc.format.names import MODEL, SPEC
from xformc.trainer.data.data_schema import data_schema
from xformc.trainer.data.text_examples import encode_texts, load_for
from xformc.trainer.data.text_files import Texts
from xformc.trainer.hardware import choose_device
from xformc.trainer.loop import validation_loss
from xformc.trainer.scores.metrics import Measure, perplexity_measure


def engine_perplexity(engine: Path, texts: Texts) -> list[Measure]:
    """Return the perplexity of the engine in this folder on the texts, their end tokens included.

    A text with more than `train.max_length` tokens is cut, and each part is scored without those before it.

    Raises: UserError if the engine has no tokenizer, or its model lacks parameters of its spec.
    """
    spec = load_spec(engine / SPEC)
    graph, schema = compile_training(spec).graph, data_schema(spec)
    examples = encode_texts(texts, schema, load_for(schema, spec.train.tokenizer, engine), ())
    model = TorchModule(graph)
    model.load_arrays(engine_parameters(graph, engine / MODEL))
    loss = validation_loss(model.to(choose_device()), examples, spec.train.batch_tokens, bfloat16=False)
    return [perplexity_measure(loss, int(examples.labels.lengths().sum()))]
