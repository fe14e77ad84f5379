"""The stages of the certificate, by how an engine computes."""

from collections.abc import Callable, Iterator

from xformc.compiler.certify.forward_stages import forward_stages
from xformc.compiler.certify.language_model_stages import language_model_stages
from xformc.compiler.certify.subject import Subject
from xformc.compiler.certify.translation_stages import translation_stages
from xformc.format.certificate import Stage

Progress = Callable[[str], None]
"""Called with each stage before it runs."""

STAGES: dict[str, Callable[[Subject, Progress], Iterator[Stage]]] = {
    "search": translation_stages,
    "sample": language_model_stages,
    "forward": forward_stages,
}
"""The stages in order, by how the engine computes."""
