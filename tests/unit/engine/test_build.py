"""Settings that can't be honoured, and sizes."""

from pathlib import Path
from typing import Any

import pytest

from radixserve.config import EngineConfig
from radixserve.engine.build import build_engine
from radixserve.engine.pool_size import parse_bytes
from radixserve.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"), [("2GiB", 2 << 30), ("500 MB", 500_000_000), ("1.5kib", 1536), ("1000", 1000), ("7b", 7)]
)
def test_parse_bytes(text: str, expected: int) -> None:
    assert parse_bytes("--kv-cache-memory", text) == expected


@pytest.mark.parametrize("text", ["", "lots", "-1GB", "2 GigaBytes", "1e9"])
def test_parse_bytes_refuses(text: str) -> None:
    with pytest.raises(ConfigError, match="--kv-cache-memory"):
        parse_bytes("--kv-cache-memory", text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"page_size": 0}, "--page-size is 0: must be at least 1"),
        ({"num_slots": 0}, "--num-slots is 0"),
        ({"num_slots": 8, "page_size": 16}, "less than one page of 16"),
        ({"kv_cache_memory": "10B"}, "raise --kv-cache-memory or --num-slots"),
        ({"num_slots": 10**12}, "lower --num-slots"),
        ({"max_context_len": 10**9}, "--max-context-len is 1000000000"),
        ({"eviction_policy": "random"}, "random"),
        ({"order": "random"}, "--order is 'random'"),
        ({"device": "tpu"}, "--device is 'tpu'"),
        ({"model": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"num_slots": "many"}, "--num-slots is 'many': expected int | null, got str"),
        ({"page_size": 1.5}, "--page-size is 1.5"),
        ({"dtype": "int8"}, "--dtype is 'int8'"),
        ({"quantization": "int4"}, "--quantization is 'int4'"),
        ({"model": None}, "--model is None"),
        ({"max_batch_tokens": 0}, "--max-batch-tokens is 0"),
    ],
)
def test_a_setting_that_makes_no_sense_is_one_line(tiny_model_dir: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_engine(EngineConfig(**{"model": str(tiny_model_dir), "device": "cpu", "num_threads": 1, **settings}))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_pool_is_sized_from_memory_and_holds_whole_pages(tiny_model_dir: Path) -> None:
    config = EngineConfig(
        model=str(tiny_model_dir), device="cpu", dtype="float32", kv_cache_memory="1MiB", page_size=16, num_threads=1
    )
    info = build_engine(config).info
    assert info.limits.num_slots % 16 == 0
    assert 0.9 * (1 << 20) < info.kv_bytes <= 1 << 20
