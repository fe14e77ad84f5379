"""The stages of the certificate of each task."""

from collections.abc import Callable, Iterator

from xformc.compiler.certify.label_stages import label_stages
from xformc.compiler.certify.language_model_stages import language_model_stages
from xformc.compiler.certify.subject import Subject
from xformc.compiler.certify.translation_stages import translation_stages
from xformc.format.certificate import Stage

Progress = Callable[[str], None]
"""Called with each stage before it runs."""

STAGES: dict[str, Callable[[Subject, Progress], Iterator[Stage]]] = {
    "translation": translation_stages,
    "language_model": language_model_stages,
    "tagging": label_stages,
    "classification": label_stages,
}
"""The stages of each task, in order."""
