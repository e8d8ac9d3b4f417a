"""Adapters against PEFT in float32, and on the native kernels against float32 and against themselves in other batches."""

from pathlib import Path
from typing import Any

import pytest
import torch

from radixserve import kernels
from radixserve.models.decoder import AnyDecoder
from radixserve.models.loader import load_model
from radixserve.models.native_operations import NativeOperations
from tests.kernel_levels import available_levels
from tests.sequences import Sequences
from tests.tiny_adapters import make_tiny_adapter
from tests.tiny_models import make_tiny_model

CPU = torch.device("cpu")
ADAPTERS: dict[str, dict[str, Any]] = {
    "all modules": {},
    "q and v": {"targets": ("q_proj", "v_proj")},
    "o": {"targets": ("o_proj",), "rank": 1},
    "gate": {"targets": ("gate_proj",), "rank": 7},
    "up and down, rank 128": {"targets": ("up_proj", "down_proj"), "rank": 128},
    "rslora": {"rank": 6, "use_rslora": True},
    "patterns": {
        "rank_pattern": {"k_proj": 3, "down_proj": 16},
        "alpha_pattern": {"q_proj": 1, r"layers\.1\.mlp\.up_proj": 40},
    },
}


def tokens(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(250, (count,), generator=torch.Generator().manual_seed(seed))


def load(decoder: AnyDecoder, number: int, adapter: Path) -> None:
    decoder.adapters.put(number, decoder.adapters.read(str(adapter))[0])


def adapted(model: Path, adapter: Path, dtype: torch.dtype = torch.float32, **operations: Any) -> AnyDecoder:
    decoder = load_model(model, dtype, CPU, **operations)
    load(decoder, 1, adapter)
    return decoder


def compute(decoder: AnyDecoder, ids: torch.Tensor, load: int | None = 1) -> torch.Tensor:
    return Sequences(decoder, 1).extend({0: ids}, loads={} if load is None else {0: load})


@pytest.fixture(params=["llama", "qwen2", "qwen3"], scope="module")
def model_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("adapted") / request.param, request.param)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("kind", ADAPTERS)
def test_an_adapter_adds_what_peft_adds(kind: str, model_dir: Path, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    adapter = make_tiny_adapter(tmp_path / "adapter", model_dir, **ADAPTERS[kind])
    base = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    plain = base(tokens(60)[None]).logits[0]
    expected = PeftModel.from_pretrained(base, adapter)(tokens(60)[None]).logits[0]
    found = compute(adapted(model_dir, adapter), tokens(60))
    assert (expected - plain).abs().max() > 0.1, "the adapter must matter"
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.skipif(kernels.NOT_BUILT is not None, reason=str(kernels.NOT_BUILT))
@pytest.mark.parametrize("kind", ADAPTERS)
def test_a_native_adapter_is_as_exact_as_torch(kind: str, model_dir: Path, tmp_path: Path) -> None:
    adapter = make_tiny_adapter(tmp_path / "adapter", model_dir, **ADAPTERS[kind])
    exact = compute(adapted(model_dir, adapter), tokens(120))
    by_torch = compute(adapted(model_dir, adapter, torch.bfloat16), tokens(120))
    native = compute(adapted(model_dir, adapter, torch.bfloat16, operations=NativeOperations()), tokens(120))
    assert (native - exact).square().mean() <= (by_torch - exact).square().mean()


def _mixed_bits(decoder: AnyDecoder) -> None:
    """The base and two adapters in one batch, in chunks: the bits of each alone."""
    loads = {1: 1, 2: 2}
    sequences = [tokens(50, seed) for seed in range(3)]
    alone = [compute(decoder, ids, loads.get(row)) for row, ids in enumerate(sequences)]
    mixed = Sequences(decoder, 4)
    parts: list[list[torch.Tensor]] = [[], [], []]
    cuts = {0: [1, 30, 19], 1: [13, 1, 36], 2: [40, 9, 1]}
    done = dict.fromkeys(cuts, 0)
    for lengths in zip(*cuts.values(), strict=True):
        runs = {row: sequences[row][done[row] : done[row] + length] for row, length in enumerate(lengths)}
        for row, logits in enumerate(mixed.extend(runs, loads=loads).split(lengths)):
            parts[row].append(logits)
            done[row] += lengths[row]
    for row in range(3):
        torch.testing.assert_close(torch.cat(parts[row]), alone[row], rtol=0, atol=0)


@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize("int8", [False, True])
def test_no_bit_depends_on_whose_adapters_share_the_batch(level: str, int8: bool, tiny_model_dir: Path, tmp_path: Path) -> None:
    from radixserve.kernels import _native

    best, threads = _native.level(), _native.num_threads()
    _native.choose_level(level)
    try:
        decoder = load_model(tiny_model_dir, torch.bfloat16, CPU, NativeOperations(int8))
        plain = compute(decoder, tokens(50), None)
        load(decoder, 1, make_tiny_adapter(tmp_path / "q", tiny_model_dir, targets=("q_proj", "down_proj"), rank=5))
        load(decoder, 2, make_tiny_adapter(tmp_path / "all", tiny_model_dir, rank=40, seed=1))
        for count in (1, 2, 3):
            _native.set_num_threads(count)
            assert torch.equal(compute(decoder, tokens(50), None), plain)
            _mixed_bits(decoder)
    finally:
        _native.choose_level(best)
        _native.set_num_threads(threads)
