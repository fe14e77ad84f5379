"""The seconds until the first step of a training on prepared data, by parts: of the clock, and of the processor.

python -m benchmarks.first_step specs/multi30k.yaml --data PREPARED
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = """
import sys, time
began = time.monotonic(), time.process_time()
def told(part):
    clock, processor = time.monotonic() - began[0], time.process_time() - began[1]
    print(f"{part:24}{clock:6.2f} s{processor:6.2f} s of the processor", flush=True)
from pathlib import Path
from xformc.commands.collection import uncollected
with uncollected():
    import torch
    told("torch")
    import xformc.trainer.train as trainer
    from xformc.compiler.spec import load_spec
    from xformc.trainer import loop
    import torch._dynamo
told("xformc.trainer.train")
torch.set_num_threads(int(sys.argv[4]))
spec = load_spec(Path(sys.argv[1]), ["train.steps=3"])
def timed(module, name, part):
    function = getattr(module, name)
    def call(*arguments, **named):
        result = function(*arguments, **named)
        told(part)
        return result
    setattr(module, name, call)
timed(trainer, "open_run", "the run and its data")
timed(trainer, "TorchModule", "the model")
timed(loop, "take_step", "a step")
timed(trainer, "validation_losses", "the validation loss")
trainer.train_weights(spec, Path(sys.argv[2]), Path(sys.argv[3]), trainer.Options(), quiet=True)
"""


def main() -> None:
    """Print the times of each attempt; each is a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--attempts", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    for _ in range(options.attempts):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", SCRIPT, str(options.spec), str(options.data), f"{folder}/run"]
            print(subprocess.run([*command, str(options.threads)], check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
