"""A decoder split over ranks, which are threads here: the logits of the whole one."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from radixserve import kernels
from radixserve.engine.ranks.group import Group, find_store, make_store
from radixserve.models.decoder import AnyDecoder
from radixserve.models.loader import load_model
from radixserve.models.native_operations import NativeOperations
from radixserve.models.sharding import Shard
from radixserve.models.source import load_config
from radixserve.models.torch_operations import TorchOperations
from radixserve.models.vocabulary import SplitVocabulary
from tests.sequences import Sequences
from tests.tiny_adapters import make_tiny_adapter
from tests.tiny_models import make_tiny_model

CPU = torch.device("cpu")
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "one KV head": ("llama", {"num_key_value_heads": 1}),
    "mistral, window 24": ("mistral", {}),
    "qwen2, tied, biases": ("qwen2", {}),
    "qwen3, q and k norm": ("qwen3", {}),
}


def on_ranks(size: int, work: Callable[[Group], Any]) -> list[Any]:
    """What `work` gives on each of `size` ranks."""
    store = make_store()

    def run(rank: int) -> Any:
        group = Group(rank, size, CPU)
        group.join(find_store(store.port))
        with torch.inference_mode():
            return work(group)

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_the_logits_are_those_of_one_rank(tmp_path: Path, name: str, size: int) -> None:
    family, overrides = MODELS[name]
    path = make_tiny_model(tmp_path, family, **overrides)
    model = load_config(path)
    ids = torch.randint(0, model.vocab_size, (60,), generator=torch.Generator().manual_seed(3))
    expected = Sequences(load_model(path, torch.float64, CPU), 1).extend({0: ids})

    def work(group: Group) -> torch.Tensor:
        shard = Shard(model, group.rank, size)
        operations = SplitVocabulary(TorchOperations(group.sum), group, shard)
        sequences = Sequences(load_model(path, torch.float64, CPU, operations, shard.open), 1)
        return torch.cat([sequences.extend({0: part}) for part in ids.split([40, 1, 19])])

    logits = on_ranks(size, work)
    torch.testing.assert_close(logits[0], expected, rtol=0, atol=1e-9)
    assert [part.shape[1] for part in logits[1:]] == [len(Shard(model, rank, size).vocab) for rank in range(1, size)]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_an_adapter_is_split_as_its_base(tmp_path: Path, family: str, size: int) -> None:
    path = make_tiny_model(tmp_path / "model", family)
    adapter = str(make_tiny_adapter(tmp_path / "adapter", path, rank_pattern={"k_proj": 3}))
    model, ids = load_config(path), torch.arange(50)

    def logits(decoder: AnyDecoder) -> torch.Tensor:
        decoder.adapters.put(1, decoder.adapters.read(adapter)[0])
        return Sequences(decoder, 1).extend({0: ids}, loads={0: 1})

    def work(group: Group) -> torch.Tensor:
        shard = Shard(model, group.rank, size)
        operations = SplitVocabulary(TorchOperations(group.sum), group, shard)
        return logits(load_model(path, torch.float64, CPU, operations, shard.open, shard.open_adapter))

    expected = logits(load_model(path, torch.float64, CPU))
    torch.testing.assert_close(on_ranks(size, work)[0], expected, rtol=0, atol=1e-9)


@pytest.mark.skipif(kernels.NOT_BUILT is not None, reason=str(kernels.NOT_BUILT))
@pytest.mark.parametrize("size", [2, 3])
def test_no_bit_depends_on_what_else_is_in_the_step(tmp_path: Path, size: int) -> None:
    path = make_tiny_model(tmp_path, hidden_size=256)
    model = load_config(path)
    ids = torch.randint(0, model.vocab_size, (2, 90), generator=torch.Generator().manual_seed(3))

    def work(group: Group) -> list[torch.Tensor]:
        shard = Shard(model, group.rank, size)
        operations = SplitVocabulary(NativeOperations(reduce=group.sum), group, shard)
        decoder = load_model(path, torch.bfloat16, CPU, operations, shard.open)
        together = Sequences(decoder, 2).extend({0: ids[0], 1: ids[1]})
        alone = Sequences(decoder, 1)
        return [together[:90], torch.cat([alone.extend({0: part}) for part in ids[0].split([50, 1, 39])])]

    together, alone = on_ranks(size, work)[0]
    assert torch.equal(together, alone)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_sums_and_gathers(dtype: torch.dtype) -> None:
    def work(group: Group) -> tuple[torch.Tensor, torch.Tensor]:
        total = group.sum(torch.full((3, 2), group.rank + 1.0, dtype=dtype))
        return total, group.gather(torch.full((2, group.rank + 1), group.rank, dtype=dtype), [1, 2, 3])

    (total, gathered), (other, own), _ = on_ranks(3, work)
    assert total.tolist() == other.tolist() == [[6.0, 6.0]] * 3
    assert gathered.tolist() == [[0, 1, 1, 2, 2, 2]] * 2
    assert own.tolist() == [[1, 1]] * 2
