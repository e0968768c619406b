"""Supervises training runs: clean before launch, the training signal never touched, no night wasted."""

__version__ = "0.1.0"
