"""Checks that an engine computes the function of its spec, within bounds."""

from xformc.compiler.certify.certify import certify, engine_parameters, verify_engine
from xformc.format.certificate import Certificate, Stage

__all__ = ["Certificate", "Stage", "certify", "engine_parameters", "verify_engine"]
