"""The plan by which a model is split: every part once, and each query head beside its KV head."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from radixserve.errors import ModelError
from radixserve.models.config import ModelConfig, RopeConfig
from radixserve.models.sharding import Shard

MODEL = ModelConfig(
    architecture="llama", num_layers=1, hidden_size=32, intermediate_size=96, num_heads=4, num_kv_heads=2, head_dim=8,
    vocab_size=50, max_context_len=64, rms_norm_eps=1e-5, rope=RopeConfig(theta=1e4), windows=(None,),
    tie_word_embeddings=False,
)  # fmt: skip


@given(num_kv_heads=st.integers(1, 6), group=st.integers(1, 6), inner=st.integers(36, 200), data=st.data())
def test_every_part_is_somewhere_and_query_heads_are_beside_their_kv_heads(
    num_kv_heads: int, group: int, inner: int, data: st.DataObject
) -> None:
    model = replace(MODEL, num_heads=num_kv_heads * group, num_kv_heads=num_kv_heads, intermediate_size=inner)
    size = data.draw(st.integers(1, min(model.num_heads, inner // (1 if inner % 16 else 16))))
    shards = [Shard(model, rank, size) for rank in range(size)]
    assert [head for shard in shards for head in shard.heads] == list(range(model.num_heads))
    assert [i for shard in shards for i in shard.inner] == list(range(inner))
    assert [i for shard in shards for i in shard.vocab] == list(range(model.vocab_size))
    for shard in shards:
        own = shard.config
        assert own.vocab_size == model.vocab_size
        assert own.num_heads == len(shard.heads) > 0
        if inner % 16 == 0:
            assert own.intermediate_size % 16 == 0
        for i, head in enumerate(shard.heads):
            assert shard.kv_heads[i // (own.num_heads // own.num_kv_heads)] == head // group


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_row_parallel_products_add_up_to_the_whole_with_their_bias_once(size: int) -> None:
    weight, bias = torch.randn(32, 96, dtype=torch.float64), torch.randn(32, dtype=torch.float64)
    x = torch.randn(5, 96, dtype=torch.float64)
    total = torch.zeros(5, 32, dtype=torch.float64)
    for rank in range(size):
        shard = Shard(MODEL, rank, size)
        part = shard.cut("model.layers.0.mlp.down_proj.weight", weight)
        own = x[:, shard.inner.start : shard.inner.stop]
        total += own @ part.T + shard.cut("model.layers.0.mlp.down_proj.bias", bias)
    torch.testing.assert_close(total, x @ weight.T + bias)


def test_norms_are_everywhere() -> None:
    weight = torch.randn(32)
    assert torch.equal(Shard(MODEL, 1, 2).cut("model.layers.0.input_layernorm.weight", weight), weight)


@pytest.mark.parametrize(
    ("model", "size", "message"),
    [
        (MODEL, 5, "--tensor-parallel is 5: the model has 4 query heads, a rank needs one; ask for 4 or less"),
        (replace(MODEL, intermediate_size=48), 4, "--tensor-parallel is 4: the model has 3 parts of 16 in its MLP"),
    ],
)
def test_more_ranks_than_the_model_can_be_split_into_are_refused(model: ModelConfig, size: int, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Shard(model, 0, size)


def test_weights_of_a_path_are_those_of_the_rank(tiny_model_dir: Path) -> None:
    whole = replace(MODEL, vocab_size=259)
    config, checkpoint = Shard(whole, 1, 2).open(tiny_model_dir)
    assert (config.num_heads, config.num_kv_heads, config.intermediate_size) == (2, 1, 64)
    assert checkpoint.read("model.layers.0.self_attn.k_proj.weight").shape == (16, 64)
    assert checkpoint.read("lm_head.weight").shape == (130, 64)
