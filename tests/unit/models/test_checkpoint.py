"""Weights are checked whole before any is read, and what does not fit is named."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from radixserve.errors import ModelError
from radixserve.models.source import load_config, open_checkpoint
from tests.tiny_models import make_tiny_model


def rewrite(directory: Path, changes: dict[str, torch.Tensor | None]) -> None:
    """Sets tensors of a checkpoint; None removes one."""
    tensors = load_file(directory / "model.safetensors") | changes
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, directory / "model.safetensors")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("model.layers.1.mlp.up_proj.weight", None, "lack model.layers.1.mlp.up_proj.weight"),
        ("lm_head.weight", None, "lack lm_head.weight"),
        ("model.norm.weight", torch.ones(65), "differ: model.norm.weight is [65], not [64]"),
        ("model.layers.2.mlp.up_proj.weight", torch.ones(1), "have unknown model.layers.2.mlp.up_proj.weight"),
        ("model.layers.0.self_attn.q_proj.bias", torch.ones(64), "have unknown model.layers.0.self_attn.q_proj.bias"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(tmp_path: Path, name: str, value: torch.Tensor | None, words: str) -> None:
    rewrite(make_tiny_model(tmp_path), {name: value})
    with pytest.raises(ModelError) as error:
        open_checkpoint(tmp_path)
    assert words in str(error.value)


def test_many_faults_make_one_short_line(tmp_path: Path) -> None:
    make_tiny_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 40}))
    with pytest.raises(ModelError, match=r"and \d+ more") as error:
        open_checkpoint(tmp_path)
    assert len(str(error.value)) < 500


def test_a_tied_head_may_be_stored_twice_and_old_frequencies_are_ignored(tmp_path: Path) -> None:
    tensors = load_file(make_tiny_model(tmp_path, tie_word_embeddings=True) / "model.safetensors")
    head = tensors["model.embed_tokens.weight"].clone()
    rewrite(tmp_path, {"lm_head.weight": head, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)})
    config, _ = open_checkpoint(tmp_path)
    assert config.tie_word_embeddings


def test_a_head_that_is_said_to_be_tied_and_is_stored_with_other_numbers_counts(tmp_path: Path) -> None:
    plain = make_tiny_model(tmp_path / "plain")
    head = load_file(plain / "model.safetensors")["lm_head.weight"]
    tied = make_tiny_model(tmp_path / "tied", tie_word_embeddings=True)
    rewrite(tied, {"lm_head.weight": head})
    assert not load_config(tied).tie_word_embeddings
    config, checkpoint = open_checkpoint(tied)
    assert not config.tie_word_embeddings
    assert torch.equal(checkpoint.read("lm_head.weight"), head)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    tensors = load_file(make_tiny_model(tmp_path) / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for shard, members in shards.items():
        save_file({name: tensors[name] for name in members}, tmp_path / shard)
    weight_map = {name: shard for shard, members in shards.items() for name in members}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return tmp_path


def test_shards_are_read_as_one(sharded: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    _, checkpoint = open_checkpoint(sharded)
    whole = load_file(make_tiny_model(tmp_path_factory.mktemp("whole")) / "model.safetensors")
    assert set(checkpoint.shapes) == set(whole)
    assert all(torch.equal(checkpoint.read(name), tensor) for name, tensor in whole.items())


def test_a_missing_shard_is_named(sharded: Path) -> None:
    (sharded / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model-00002-of-00002\.safetensors is missing"):
        open_checkpoint(sharded)


def test_a_broken_index_is_named(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ModelError, match=r"index\.json is broken"):
        open_checkpoint(sharded)


def test_a_cut_off_file_is_named(tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"model\.safetensors is broken"):
        open_checkpoint(tmp_path)


def test_a_directory_without_safetensors_is_refused(tmp_path: Path) -> None:
    (make_tiny_model(tmp_path) / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="convert the weights to safetensors"):
        open_checkpoint(tmp_path)


def test_quantised_tensors_are_refused(tmp_path: Path) -> None:
    rewrite(make_tiny_model(tmp_path), {"model.norm.weight": torch.ones(64, dtype=torch.int8)})
    _, checkpoint = open_checkpoint(tmp_path)
    with pytest.raises(ModelError, match="int8"):
        checkpoint.read("model.norm.weight")


@pytest.mark.parametrize(("name", "form"), [("qweight", "GPTQ or AWQ"), ("scales", "MLX"), ("weight_packed", "compressed-tensors")])
def test_quantised_weights_that_the_config_does_not_name_are_named(tmp_path: Path, name: str, form: str) -> None:
    make_tiny_model(tmp_path)
    rewrite(tmp_path, {f"model.layers.0.mlp.up_proj.{name}": torch.ones(2, 2), "model.layers.0.mlp.up_proj.weight": None})
    with pytest.raises(ModelError, match=f"the weights are quantised .{form}.: give unquantised weights or a GGUF file"):
        open_checkpoint(tmp_path)
