"""A certificate as lines of text: what was compared, how far apart it was, and how far it may be."""

from xformc.format.document import Document


def certificate_lines(certificate: Document) -> list[str]:
    """One line a stage or measured number of certificate.json, such as `ok   logits    1.2e-06 <= 1e-04  what it is`.

    It is what the compiler prints for the same certificate, without needing the compiler.

    Raises: UserError if the document is not a certificate.
    """
    measured = certificate.sections("measured") if "measured" in certificate.fields else []
    return [*map(_stage_line, certificate.sections("stages")), *map(_measured_line, measured)]


def _measured_line(item: Document) -> str:
    return f"     {item.text('name'):8} {item.number('value', 0, float('inf')):8.4f}           {item.text('what')}"


def _stage_line(stage: Document) -> str:
    mark = "ok  " if stage.boolean("passed") else "FAIL"
    value, bound = stage.number("value", 0, float("inf")), stage.number("bound", 0, float("inf"))
    detail = stage.text("detail") if "detail" in stage.fields else ""
    line = f"{mark} {stage.text('name'):8} {value:8.1e} <= {bound:.0e}  {stage.text('what')}"
    return f"{line}  {detail}" if detail else line
