"""Failure texts: the catalogue (data) and the matcher. Bytes in, hits out; no files, no judgement.

`Matcher` holds the compiled patterns, `Scanner` reads one stream of bytes. What a hit means is `core/rootcause.py`.
"""

from __future__ import annotations

from supervisor.core.evidence import WatchHit
from supervisor.signatures.catalogue import CATALOGUE
from supervisor.signatures.matcher import Matcher
from supervisor.signatures.model import Text
from supervisor.signatures.scanner import Scanner

__all__ = ["CATALOGUE", "Matcher", "Scanner", "Text", "WatchHit"]
