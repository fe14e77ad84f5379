"""Proving that an engine computes the function of its spec."""

from xformc.compiler.certify.certificate import Certificate, Stage
from xformc.compiler.certify.certify import certify, engine_parameters, verify_engine

__all__ = ["Certificate", "Stage", "certify", "engine_parameters", "verify_engine"]
