"""The real guardian with the stand-in for its supervisors and, where asked, a shorter idle time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from supervisor import guardian
from supervisor.edges import detached

STAND_IN = str(Path(__file__).with_name("stand_in_supervisor.py"))
detached.supervisor_argv = lambda name: (sys.executable, STAND_IN, name)
detached.guardian_argv = lambda home: (sys.executable, __file__, "--home", str(home.root))
guardian.IDLE_S = float(os.environ.get("TEST_IDLE_S", "600"))
sys.exit(guardian.main(sys.argv[1:]))
