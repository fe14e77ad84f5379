"""The memory of several processes with the same model, which share what they map from its files.

    python -m benchmarks.sharing ENGINE... [CTRANSLATE2_MODEL...] [--processes 1 2 4] [--batch 8]

Each process loads the model and translates a batch of random sentences on one thread, as in `benchmarks/load.py`. While
all are alive, each says its proportional set size, for which Linux divides a page by the number of processes that have
it. `sum` adds them up, in MB; `another` is what each process more has added.
"""

import argparse
from pathlib import Path

from benchmarks.decode.child import Child


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--processes", nargs="+", type=int, default=(1, 2, 4))
    parser.add_argument("--batch", type=int, default=8)
    arguments = parser.parse_args()
    print(f"{'':24} {'processes':>9} {'sum':>7} {'another':>7}")
    for folder in arguments.folders:
        children, before, counted = list[Child](), 0.0, 0
        for count in sorted({*arguments.processes}):
            while len(children) < count:
                children.append(Child("footprint", {}))
                children[-1].ask(do="hold", folder=str(folder), batch=arguments.batch)
            memory = sum(child.ask(do="proportional")["bytes"] for child in children) / 1e6
            another = f"{(memory - before) / (count - counted):7,.0f}" if counted else ""
            print(f"{folder.name:24} {count:9} {memory:7,.0f} {another:>7}", flush=True)
            before, counted = memory, count
        for child in children:
            child.close()


if __name__ == "__main__":
    main()
