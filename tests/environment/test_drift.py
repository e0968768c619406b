"""What changed between two attempts' environments, and what the pins say to it."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.drift import Change, PinMismatch, Suspicion, any_build, diff, pin_mismatches, suspects

BASE: dict[str, Any] = {
    "torch": {"version": "2.11.0+cu128", "cuda": "12.8"},
    "packages": {"torch": "2.11.0+cu128", "nvidia-cublas-cu12": "12.8.3", "flash-attn": "2.8.0", "numpy": "2.4.0"},
    "nccl": "2.27.3",
    "driver": "570.86",
    "data": {"files": 10},
    "python": {"version": "3.12.1"},
    "kernel": "6.1",
    "libc": "glibc 2.36",
    "variables": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "code": {"train.py": "aaaa"},
    "git": {"commit": "c0ffee", "dirty": {"a.py": "1111"}},
    "gpus": [{"index": 0, "name": "H200", "uuid": "GPU-1"}],
    "unknown": {},
}


def changed(**more: Any) -> dict[str, Any]:
    return {**BASE, **more}


def test_an_equal_environment_has_no_drift():
    assert diff(BASE, BASE) == ()
    assert suspects(()) == ""


def test_the_most_suspicious_change_comes_first():
    new = changed(
        torch={"version": "2.11.0+cu130", "cuda": "13.0"},
        packages={"torch": "2.11.0+cu130", "nvidia-cublas-cu13": "13.0", "flash-attn": "2.8.1", "numpy": "2.4.1"},
        nccl="2.28.1",
        driver="580.65",
        data={"files": 11},
        python={"version": "3.12.2"},
        kernel="6.2",
        libc="glibc 2.37",
        variables={},
        code={"train.py": "bbbb"},
        git={"commit": "decaf", "dirty": {}},
        gpus=[{"index": 0, "name": "H200", "uuid": "GPU-2"}],
    )
    changes = diff(BASE, new)
    assert [change.suspicion for change in changes] == sorted(change.suspicion for change in changes)
    assert [str(change) for change in changes] == [
        "torch cuda: 12.8 -> 13.0",
        "torch version: 2.11.0+cu128 -> 2.11.0+cu130",
        "nccl: 2.27.3 -> 2.28.1",
        "nvidia-cublas-cu12: 12.8.3 -> not there",
        "nvidia-cublas-cu13: not there -> 13.0",
        "driver: 570.86 -> 580.65",
        "data files: 10 -> 11",
        "flash-attn: 2.8.0 -> 2.8.1",
        "gpus 0: H200 GPU-1 -> H200 GPU-2",
        "PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True -> not there",
        "python version: 3.12.1 -> 3.12.2",
        "code train.py: aaaa -> bbbb",
        "git commit: c0ffee -> decaf",
        "git dirty a.py: 1111 -> not there",
        "numpy: 2.4.0 -> 2.4.1",
        "kernel: 6.1 -> 6.2",
        "libc: glibc 2.36 -> glibc 2.37",
    ]


def test_a_torch_that_tells_no_build_is_known_by_its_package():
    old = changed(torch=None)
    new = changed(torch=None, packages={**BASE["packages"], "torch": "2.11.0+cu130"})
    (change,) = diff(old, new)
    assert str(change) == "torch version: 2.11.0+cu128 -> 2.11.0+cu130"
    assert change.suspicion is Suspicion.TORCH


def test_what_one_side_does_not_know_is_no_difference():
    assert diff(BASE, changed(packages=None, torch=None, unknown={"packages": "?", "torch": "?"})) == ()
    assert diff({}, BASE) == ()
    assert [c.name for c in diff(BASE, changed(git=None))] == ["commit", "dirty a.py"]


def test_one_suspect_is_named_alone_and_several_are_not_separable():
    numpy = Change(Suspicion.REST, "package", "numpy", "1", "2")
    driver = Change(Suspicion.DRIVER, "driver", "", "570", "580")
    torch = Change(Suspicion.TORCH, "torch", "torch version", "2.10", "2.11")
    assert suspects((driver, numpy)) == "driver: 570 -> 580"
    assert suspects((torch, driver, numpy)) == "torch version: 2.10 -> 2.11; driver: 570 -> 580 (not separable)"
    assert suspects((numpy,)) == "numpy: 1 -> 2"


@pytest.mark.parametrize(
    ("wanted", "found", "holds"),
    [
        ("2.11.0+cu128", "2.11.0+cu128", True),
        ("2.11.0+cu128", "2.11.0+cu130", False),
        ("2.11.0+cu128", "2.11.0", False),
        ("2.11.0", "2.11.0+cu130", True),
        ("2.11", "2.11.0", True),
        ("2.1", "2.10", False),
        ("2.11.0", "2.11.1", False),
        ("v2.11.0-RC1", "2.11.0rc1", True),
        ("2.11.0rc1", "2.11.0", False),
        ("2.11.0.dev20260101", "2.11.0.dev20260101+cu130", True),
        ("1.0-rev.2", "1.0.post2", True),
        ("1.0+git_abc", "1.0+git.abc", True),
        ("main", "main", True),
    ],
)
def test_a_pin_is_exact_but_for_the_build_it_does_not_name(wanted, found, holds):
    assert (pin_mismatches({"torch": wanted}, {"torch": found}) == ()) == holds


def test_names_of_packages_are_compared_as_the_index_does():
    assert pin_mismatches({"Flash_Attn": "2.8.0"}, {"flash-attn": "2.8.0"}) == ()


def test_a_mismatch_says_what_was_wanted_and_what_is_there():
    (wrong,) = pin_mismatches({"torch": "2.11.0+cu128", "numpy": "2"}, {"torch": "2.11.0+cu130", "numpy": "2.0"})
    assert wrong == PinMismatch("torch", "2.11.0+cu128", "2.11.0+cu130")
    assert str(wrong) == "torch is pinned to 2.11.0+cu128, and 2.11.0+cu130 is installed"
    (gone,) = pin_mismatches({"torch": "2"}, {})
    assert "none is installed" in str(gone)


def test_packages_that_could_not_be_told_hold_no_pin():
    (wrong,) = pin_mismatches({"torch": "2"}, None)
    assert "could not be told" in str(wrong)


def test_a_pin_without_a_build_is_told():
    assert any_build({"torch": "2.11.0", "vllm": "0.11+cu128"}) == ("torch",)
