"""Predictions: labels, numbers and vectors of texts and arrays."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from xformc.runtime.arrays import as_rows, read_rows
from xformc.runtime.job import Job, as_it_is
from xformc.runtime.kinds.labels import Prediction
from xformc.runtime.methods.loaded import Loaded
from xformc.runtime.predict import MAX_BATCH_POSITIONS, Example, positions_needed, predict_rows
from xformc.runtime.rows import Row
from xformc.runtime.stream import Batching

Item = TypeVar("Item")
Result = TypeVar("Result")


class Predicting(Loaded):
    """Methods of engines that label and measure."""

    def predict(
        self,
        examples: Sequence[Example] | Mapping[str, Any],
        *,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_POSITIONS,
        truncate: bool = False,
    ) -> list[Prediction]:
        """Compute the results for texts, or for arrays by the name of their input (docs/runtime.md).

        Returns: the prediction of each example, in order.

        examples: texts; for an engine with several text inputs, sequences of texts in the order of the inputs, or
            mappings from their names; or one mapping from each input's name to an array with one row for each example.
            The text of a sound or an image is the path of its .wav, .png or .jpg file.
        workers: batches run at the same time. None: the number that the engine was loaded for.
        max_batch_tokens: capacity of a batch in positions, padding included. Neither this nor `workers` changes the
            results.
        truncate: cut texts that are too long, with a warning; otherwise they are errors.

        Raises: UserError for an example that does not fit the engine's inputs.
        """
        self._check_method("predict", "predict")
        batching = Batching(workers, max_batch_tokens)
        if isinstance(examples, Mapping):
            rows = read_rows(self.manifest.inputs, examples, self.manifest.targets)
            return self._labelling(as_it_is).all(self.session, "predict", rows, batching)
        return self._labelling(self._reader(batching, truncate)).all(self.session, "predict", examples, batching)

    def predict_stream(
        self,
        texts: Iterable[Example],
        *,
        window: int | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_POSITIONS,
        truncate: bool = False,
    ) -> Generator[Prediction]:
        """Compute the results for any number of texts in constant memory, and yield them in order.

        The arguments are those of `predict` and the `window` of `translate_stream`.
        """
        self._check_method("predict", "predict")
        batching = Batching(workers, max_batch_tokens, window)
        return self._labelling(self._reader(batching, truncate)).stream(self.session, texts, batching)

    def predict_rows(self, rows: Sequence[Row]) -> list[Prediction]:
        """Compute the results of rows of the engine's inputs. Raises: UserError as `as_rows`."""
        self._check_method("predict", "predict")
        given, batching = as_rows(self.manifest.inputs, rows), Batching(None, MAX_BATCH_POSITIONS)
        return self._labelling(as_it_is).all(self.session, "predict", given, batching)

    def _labelling(self, encode: Callable[[int, Item], Row]) -> Job[Item, Row, Prediction]:
        needed = partial(positions_needed, inputs=self.manifest.inputs)
        return Job(encode, needed, partial(predict_rows, manifest=self.manifest, tokenizer=self.tokenizer))
