"""The phase diagram of the docs, drawn from the one table. `python -m supervisor.views.diagram` prints it."""

from __future__ import annotations

from collections import defaultdict

from supervisor.core.phases import ENDS, TRANSITIONS, Phase


def phase_diagram() -> str:
    """Mermaid text, one arrow for each pair of phases, with the records that lead from one to the other."""
    arrows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (source, trigger), target in TRANSITIONS.items():
        if source is not target:
            arrows[_name(source), _name(target)].append(trigger.replace(":", " "))
    lines = ["stateDiagram-v2", "    [*] --> preflight: EpisodeOpened"]
    for (source_name, target_name), triggers in sorted(arrows.items()):
        words = ", ".join(sorted(set(triggers)))
        lines.append(f"    {source_name} --> {target_name}: {words}")
    lines += [f"    {phase.value} --> [*]" for phase in sorted(ENDS, key=lambda phase: phase.value)]
    return "\n".join(lines) + "\n"


def _name(phase: Phase) -> str:
    return phase.value


if __name__ == "__main__":
    print(phase_diagram(), end="")
