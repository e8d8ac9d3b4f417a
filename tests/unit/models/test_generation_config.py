"""Sampling defaults of a model's files: what is taken, what is refused by name, what is warned of."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter

from radixserve.errors import ModelError
from radixserve.models.generation_config import read_sampling_defaults
from radixserve.sampling_defaults import SamplingDefaults


def directory(path: Path, values: Any) -> Path:
    (path / "generation_config.json").write_text(values if isinstance(values, str) else json.dumps(values))
    return path


def gguf(path: Path, values: dict[str, Any]) -> Path:
    writer = GGUFWriter(path / "model.gguf", "llama")
    for key, value in values.items():
        add = writer.add_int32 if isinstance(value, int) else writer.add_string if isinstance(value, str) else writer.add_float32
        add(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path / "model.gguf"


@pytest.mark.parametrize(
    ("values", "stated"),
    [
        ({}, {}),
        ({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.05, "do_sample": True}, None),
        ({"temperature": 1, "top_k": 0, "top_p": 1.0}, None),
        ({"temperature": None, "top_k": None}, {}),
        ({"top_k": -1}, {"top_k": 0}),
        ({"top_k": 20.0}, {"top_k": 20}),
        ({"do_sample": False}, {"temperature": 0.0}),
        ({"do_sample": False, "temperature": 0.6, "top_p": 0.9}, {"temperature": 0.0, "top_p": 0.9}),
        ({"max_new_tokens": 5, "eos_token_id": 3, "transformers_version": "5"}, {}),
    ],
)
def test_a_directory_states_how_its_model_is_sampled(tmp_path: Path, values: dict[str, Any], stated: dict[str, Any] | None) -> None:
    expected = {name: value for name, value in values.items() if name != "do_sample"} if stated is None else stated
    assert read_sampling_defaults(directory(tmp_path, values)).stated == expected


def test_a_directory_without_the_file_states_nothing(tmp_path: Path) -> None:
    assert read_sampling_defaults(tmp_path) == SamplingDefaults()


def test_the_header_of_a_gguf_file_states_how_its_model_is_sampled(tmp_path: Path) -> None:
    keys = {"temp": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05, "penalty_repeat": 1.1}
    defaults = read_sampling_defaults(gguf(tmp_path, {f"general.sampling.{key}": value for key, value in keys.items()}))
    assert defaults == SamplingDefaults(temperature=0.7, top_k=20, top_p=0.8, min_p=0.05, repetition_penalty=1.1)


@pytest.mark.parametrize("key", ["temperature", "top_k", "top_p", "min_p", "repetition_penalty"])
@pytest.mark.parametrize("value", ["hot", True, [1], {}, -2, float("nan"), float("inf"), 10**400, 1e300, -(10**30)])
def test_a_default_that_can_not_be_is_refused_by_file_and_key(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(ModelError) as error:
        read_sampling_defaults(directory(tmp_path, {key: value}))
    assert all(words in str(error.value) for words in ("generation_config.json", key, "--sampling-defaults neutral"))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300 + len(str(tmp_path))


@pytest.mark.parametrize("values", [{"do_sample": "no"}, {"do_sample": 0}, {"top_k": 1.5}, {"top_p": 0}, "[]", "{", "[" * 100_000])
def test_a_broken_generation_config_is_refused_by_name(tmp_path: Path, values: Any) -> None:
    named = next(iter(values)) if isinstance(values, dict) else ""
    with pytest.raises(ModelError, match=rf"generation_config\.json.*{named}"):
        read_sampling_defaults(directory(tmp_path, values))


@pytest.mark.parametrize(("key", "value"), [("general.sampling.temp", -1.0), ("general.sampling.top_k", "many")])
def test_a_default_of_a_gguf_file_that_can_not_be_is_refused_by_key(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(ModelError, match=rf"model\.gguf has {key} "):
        read_sampling_defaults(gguf(tmp_path, {key: value}))


def test_keys_that_would_change_what_is_sampled_and_are_not_honoured_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = {"no_repeat_ngram_size": 3, "num_beams": 1, "typical_p": 1.0, "suppress_tokens": [], "bad_words_ids": [[5]]}
    with caplog.at_level(logging.WARNING):
        read_sampling_defaults(directory(tmp_path, values))
    (record,) = caplog.records
    assert record.getMessage().endswith("generation_config.json states no_repeat_ngram_size, bad_words_ids: not honoured")
