"""Decoding beside CTranslate2: time, memory, load time and size of the same models."""
