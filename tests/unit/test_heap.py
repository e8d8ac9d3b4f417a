"""Memory that loading has freed goes back to the system."""

import platform
import sys
from pathlib import Path

import psutil
import pytest

from radixserve import heap
from radixserve.config import EngineConfig
from radixserve.engine import loaded_model as parts

CHUNK = 60_000
"""Bytes: below what malloc maps by itself."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another libc keeps memory in another way")
def test_freed_memory_goes_back_to_the_system() -> None:
    chunks = [bytearray(CHUNK) for _ in range(2000)]
    kept = chunks[1::100]  # above and between, as what is loaded is
    whole = psutil.Process().memory_info().rss
    del chunks
    assert heap.trim()
    assert whole - psutil.Process().memory_info().rss > 1000 * CHUNK
    assert sys.getsizeof(kept[0]) > CHUNK


def test_nothing_happens_without_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap.ctypes, "CDLL", lambda name: object())
    assert not heap.trim()


def test_what_loading_freed_is_given_back_before_the_pool_is_sized(tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    load = parts.load_model
    monkeypatch.setattr(parts, "load_model", lambda *args: (done.append("loaded"), load(*args))[1])
    monkeypatch.setattr(heap, "trim", lambda: done.append("trimmed"))
    monkeypatch.setattr(parts, "choose_num_slots", lambda *args: done.append("sized"))
    assert parts.load_rank(EngineConfig(model=str(tiny_model_dir), device="cpu", num_threads=1)).num_slots is None
    assert done == ["loaded", "trimmed", "sized"]
