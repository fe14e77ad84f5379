"""Decoding against CTranslate2: speed, memory, load time and size of the same models."""
