"""What a repeated certificate has to be: the stages of the build with their values, and the same models."""

from pathlib import Path

from xformc.compiler.certify import Certificate, verify_engine


def stages(certificate: Certificate) -> list[tuple[str, float]]:
    """The stages with their values."""
    return [(stage.name, stage.value) for stage in certificate.stages]


def assert_repeats(engine: Path, built: Certificate) -> Certificate:
    """Verify an engine: the values are those of its build, and its models those that the compiler writes."""
    verified = verify_engine(engine)
    assert stages(verified) == [*stages(built), ("models", 0)]
    return verified
