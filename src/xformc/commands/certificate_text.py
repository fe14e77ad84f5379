"""A certificate as lines of text: what was compared, how far apart it was, and how far it may be."""

from xformc.runtime.document import Document


def certificate_lines(certificate: Document) -> list[str]:
    """One line a stage of certificate.json, such as `passed  logits  1.2e-06 <= 1.0e-04  what it is`.

    Raises: UserError if the document is not a certificate.
    """
    stages = certificate.sections("stages")
    width = max((len(stage.text("name")) for stage in stages), default=0)
    return [_stage_line(stage, width) for stage in stages]


def _stage_line(stage: Document, width: int) -> str:
    verdict = "passed" if stage.boolean("passed") else "FAILED"
    value, bound = stage.number("value", 0, float("inf")), stage.number("bound", 0, float("inf"))
    return f"{verdict}  {stage.text('name'):<{width}}  {value:.1e} <= {bound:.1e}  {stage.text('what')}"
