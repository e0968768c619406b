from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nvml_stub import StubState, build_stub

from supervisor.edges.gpus import Gpus


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def old_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("old-driver"), "NO_MEMORY_V2", "NO_V3")


@pytest.fixture
def no_driver(tmp_path: Path) -> Path:
    """A directory that the loader finds no usable libnvidia-ml.so.1 in, whatever the box has."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    return tmp_path


@pytest.fixture
def state(tmp_path: Path) -> StubState:
    return StubState.of(tmp_path)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, state: StubState) -> Iterator[Callable[..., Gpus]]:
    """`opened(library, **options)`: Gpus over the stub; closed after the test."""
    made: list[Gpus] = []

    def make(library: Path, **options: object) -> Gpus:
        for name, value in state.environ(library).items():
            monkeypatch.setenv(name, value)
        made.append(Gpus(**options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for gpus in made:
        gpus.close()
