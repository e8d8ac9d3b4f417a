"""What replicas can't honour is refused in one line, and one machine is shared out among them."""

from pathlib import Path
from typing import Any

import pytest

from radixserve.config import EngineConfig, ReplicaConfig
from radixserve.errors import ConfigError
from radixserve.replicas import settings


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"replicas": 0}, "--replicas is 0: must be at least 1"),
        ({"router": "random"}, "--router is random: there is one engine to choose; add --replicas 2 or more"),
    ],
)
def test_settings_without_a_meaning_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings.wanted(ReplicaConfig(**config))


def test_replicas_are_managed_when_there_are_several_or_a_cluster() -> None:
    assert not settings.wanted(ReplicaConfig())
    assert settings.wanted(ReplicaConfig(replicas=2, router="random"))
    assert settings.wanted(ReplicaConfig(ray_address="auto"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"record": "run.jsonl"}, "--record is 'run.jsonl': replicas can't share it"),
        ({"kv_events_endpoint": "tcp://*:5557"}, "--kv-events-endpoint is 'tcp://.*': replicas can't share it"),
        ({"device": "cuda:1"}, "--device is cuda:1: each replica gets a device of its own"),
    ],
)
def test_what_replicas_can_t_honour_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings.check(EngineConfig(**config))


def test_memory_is_shared_out_unless_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share = settings.shared_out(EngineConfig(), 4).kv_cache_memory
    assert share is not None
    assert 0 < int(share) <= settings.POOL_BYTES // 4
    assert settings.shared_out(EngineConfig(num_slots=300), 4).kv_cache_memory is None
    assert settings.shared_out(EngineConfig(kv_cache_memory="1GiB"), 4).kv_cache_memory == "1GiB"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    engine = settings.with_absolute_paths(EngineConfig(model="model", adapter=("a=b",)))
    assert engine.model == str(tmp_path / "model")
    assert engine.adapter == (f"a={tmp_path / 'b'}",)
    assert settings.with_absolute_paths(EngineConfig(model="smollm2-135m")).model == "smollm2-135m"
