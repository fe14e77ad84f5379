"""Python's garbage collector and imports: hundreds of modules make objects that stay, and are searched in vain."""

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Generator[None]:
    """Collect no garbage inside the block, and never what it has left. For the imports of a command."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
