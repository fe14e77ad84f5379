"""The training steps of other libraries, for the model and the batches of benchmarks/train.py.

They need `pip install transformers accelerate ve-fairseq`; the last one is fairseq for today's Pythons, and its
torchaudio has to go again (`pip uninstall torchaudio`).
"""

import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import torch

from xformc.trainer.data.batches import Batch
from xformc.trainer.data.vocabulary import PAD

FAIRSEQ_PAD = 1
IGNORED = -100


def hugging_face(size: int, precision: str) -> Callable[[Batch], None]:
    """The step of transformers' Trainer, without its loop: forward, backward, Adam and the schedule."""
    import transformers

    transformers.logging.set_verbosity_error()
    config: Any = transformers.MarianConfig(
        vocab_size=size, d_model=128, encoder_layers=4, decoder_layers=4, encoder_ffn_dim=256, decoder_ffn_dim=256,
        encoder_attention_heads=4, decoder_attention_heads=4, dropout=0.3,
        activation_function="relu", max_position_embeddings=512, scale_embedding=True, pad_token_id=PAD,
        bos_token_id=2, eos_token_id=3, decoder_start_token_id=2, use_cache=False,
    )  # fmt: skip
    model: Any = transformers.MarianMTModel(config).train()
    arguments: Any = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(), use_cpu=True, bf16=precision == "bfloat16", label_smoothing_factor=0.1,
        learning_rate=1e-3, adam_beta2=0.98, report_to=[],
    )  # fmt: skip
    trainer: Any = transformers.Trainer(model, arguments)
    trainer.create_optimizer_and_scheduler(num_training_steps=1_000_000)
    trainer.current_gradient_accumulation_steps = 1  # set by the loop, which this goes without

    def step(batch: Batch) -> None:
        source, labels = batch.inputs["source"], batch.labels
        given = {
            "input_ids": source,
            "attention_mask": (source != PAD).long(),
            "decoder_input_ids": batch.inputs["target"],
            "labels": labels.masked_fill(labels == PAD, IGNORED),
        }
        trainer.training_step(model, given)
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
        model.zero_grad()

    return step


def fairseq(size: int) -> Callable[[Batch], None]:
    """The step of fairseq's Trainer in float32; on a processor it has no other precision."""
    names = ("options", "tasks", "dataclass.utils", "trainer")
    options, tasks, utils, training = (cast(Any, import_module(f"fairseq.{name}")) for name in names)
    folder = Path(tempfile.mkdtemp())
    for language in ("en", "de"):
        (folder / f"dict.{language}.txt").write_text("".join(f"t{index} 1\n" for index in range(size - 4)))
    words = (
        f"{folder} -s en -t de --arch transformer_iwslt_de_en --share-all-embeddings --cpu --criterion "
        "label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam --lr 0.001 --max-tokens 4096 "
        "--dropout 0.3 --max-update 1000000 --no-progress-bar "
    )
    for side in ("encoder", "decoder"):
        words += f"--{side}-embed-dim 128 --{side}-ffn-embed-dim 256 --{side}-layers 4 --{side}-attention-heads 4 "
    given = options.parse_args_and_arch(options.get_training_parser(), [*words.split(), "--adam-betas", "(0.9, 0.98)"])
    config = utils.convert_namespace_to_omegaconf(given)
    task = tasks.setup_task(config.task)
    trainer = training.Trainer(config, task, task.build_model(config.model), task.build_criterion(config.criterion))

    def padded(ids: torch.Tensor) -> torch.Tensor:
        """The ids with fairseq's padding, which is another one; what they say does not matter."""
        return torch.where(ids == PAD, FAIRSEQ_PAD, ids.clamp(min=4))

    def step(batch: Batch) -> None:
        source = batch.inputs["source"]
        read = {"src_tokens": padded(source), "src_lengths": (source != PAD).sum(1)}
        read["prev_output_tokens"] = padded(batch.inputs["target"])
        rows = {"id": torch.arange(len(source)), "nsentences": len(source), "ntokens": batch.count}
        trainer.train_step([{**rows, "net_input": read, "target": padded(batch.labels)}])

    return step
