"""A decoder on the native kernels: as near to float32 as torch's bfloat16 or nearer, and the same bits however it is stepped."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from radixserve import kernels
from radixserve.config import EngineConfig
from radixserve.engine.build import build_engine
from radixserve.errors import ModelError
from radixserve.models.loader import choose_operations, load_model
from radixserve.models.native_operations import NativeOperations
from radixserve.models.source import load_config
from radixserve.text.tokenizer import Tokenizer
from tests.kernel_levels import available_levels
from tests.sequences import Sequences
from tests.tiny_models import make_tiny_model

if kernels.NOT_BUILT is not None:
    pytest.skip(kernels.NOT_BUILT, allow_module_level=True)

from radixserve.kernels import _native

CPU = torch.device("cpu")
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama3 rope": ("llama3", {}),
    "yarn": ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}}),
    "mistral, window 24": ("mistral", {}),
    "qwen2, tied, biases": ("qwen2", {}),
    "qwen3, q and k norm": ("qwen3", {}),
}


def root_mean_square(x: torch.Tensor) -> float:
    return x.double().square().mean().sqrt().item()


def check_errors(path: Path, ids: torch.Tensor) -> None:
    """Errors against float32: native's no larger than torch's in the same dtype."""
    exact = Sequences(load_model(path, torch.float32, CPU), 1).extend({0: ids})
    torch_error = root_mean_square(Sequences(load_model(path, torch.bfloat16, CPU), 1).extend({0: ids}) - exact)
    native_error = root_mean_square(
        Sequences(load_model(path, torch.bfloat16, CPU, NativeOperations()), 1).extend({0: ids}) - exact
    )
    assert native_error <= torch_error, f"native is off by {native_error}, torch by {torch_error}"
    assert native_error <= 0.03 * root_mean_square(exact)


def check_bits(path: Path, first: torch.Tensor, second: torch.Tensor, int8: bool = False) -> None:
    """Whole; and in chunks and single tokens, in other rows and slots, beside another sequence."""
    decoder = load_model(path, torch.bfloat16, CPU, NativeOperations(int8))
    whole = Sequences(decoder, 2)
    expected = [whole.extend({0: first}), whole.extend({1: second})]
    chunked = Sequences(decoder, 2)
    parts = [chunked.extend({1: first[:70]})]
    mixed = chunked.extend({0: second[:40], 1: first[70:71]})
    parts.append(mixed[40:])
    last = chunked.extend({1: first[71:], 0: second[40:]})
    parts.append(last[: len(first) - 71])
    assert torch.equal(torch.cat(parts), expected[0])
    assert torch.equal(torch.cat((mixed[:40], last[len(first) - 71 :])), expected[1])


@pytest.fixture(params=MODELS, scope="module")
def model_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family, overrides = MODELS[request.param]
    return make_tiny_model(tmp_path_factory.mktemp("native") / family, family, **overrides)


def tokens(count: int, vocab_size: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(vocab_size, (count,), generator=torch.Generator().manual_seed(seed))


def test_every_family_is_as_exact_as_by_torch(model_dir: Path) -> None:
    check_errors(model_dir, tokens(120, 250))


def test_every_family_has_the_same_bits_in_chunks_and_batches(model_dir: Path) -> None:
    check_bits(model_dir, tokens(100, 250), tokens(41, 250, seed=1))


@pytest.mark.parametrize("level", available_levels())
def test_every_level_is_exact_and_has_the_same_bits(level: str, tiny_model_dir: Path) -> None:
    best = _native.level()
    _native.choose_level(level)
    try:
        check_errors(tiny_model_dir, tokens(120, 250))
        check_bits(tiny_model_dir, tokens(100, 250), tokens(41, 250, seed=1))
    finally:
        _native.choose_level(best)


def test_the_default_model_is_as_exact_as_by_torch(default_model_dir: Path) -> None:
    check_errors(default_model_dir, tokens(150, 49000))


def test_the_default_model_has_the_same_bits_in_chunks_and_batches(default_model_dir: Path) -> None:
    check_bits(default_model_dir, tokens(150, 49000), tokens(41, 49000, seed=1))


def test_every_family_has_the_same_bits_in_chunks_and_batches_in_int8(model_dir: Path) -> None:
    check_bits(model_dir, tokens(100, 250), tokens(41, 250, seed=1), int8=True)


def test_the_default_model_in_int8_is_near_to_what_it_is(default_model_dir: Path) -> None:
    """The likeliest token is the same after nearly every token of a text, and the logits are near."""
    prompt = "The capital of France is Paris. The capital of Germany is Berlin. The capital of Italy is"
    ids = torch.from_numpy(Tokenizer.load(default_model_dir).encode(prompt)).long()
    plain, int8 = (
        Sequences(load_model(default_model_dir, torch.bfloat16, CPU, NativeOperations(quantized)), 1).extend({0: ids})
        for quantized in (False, True)
    )
    assert torch.equal(plain[-1].argmax(), int8[-1].argmax())
    assert (plain.argmax(-1) == int8.argmax(-1)).float().mean() > 0.8
    error = root_mean_square(int8 - plain) / root_mean_square(plain)
    assert 0 < error < 0.25


@pytest.mark.parametrize(
    ("overrides", "dtype", "device", "reason"),
    [
        ({}, torch.float32, "cpu", "the dtype is float32"),
        ({}, torch.bfloat16, "cuda:0", "the device is cuda:0"),
        ({"intermediate_size": 120}, torch.bfloat16, "cpu", "intermediate_size 120 not a multiple of 16"),
        ({"head_dim": 12}, torch.bfloat16, "cpu", "head_dim is 12"),
    ],
)
def test_what_native_kernels_lack_torch_computes_and_says_why(
    tmp_path: Path, overrides: dict[str, Any], dtype: torch.dtype, device: str, reason: str
) -> None:
    config = load_config(make_tiny_model(tmp_path / "model", **overrides))
    operations, why = choose_operations("auto", config, dtype, torch.device(device))
    assert operations.name == "torch"
    assert why.startswith("torch, because ")
    assert reason in why
    with pytest.raises(ModelError, match=r"--kernels native can't run this model: .*use --kernels auto or torch"):
        choose_operations("native", config, dtype, torch.device(device))
    with pytest.raises(ModelError, match=f"--quantization int8 needs the native kernels: .*{reason}"):
        choose_operations("auto", config, dtype, torch.device(device), "int8")


@pytest.mark.parametrize(("asked", "expected"), [("native", "native "), ("torch", "torch, as asked")])
def test_an_engine_computes_with_what_is_asked_for_and_reports_it(tiny_model_dir: Path, asked: Any, expected: str) -> None:
    engine = build_engine(
        EngineConfig(model=str(tiny_model_dir), kernels=asked, dtype="bfloat16", device="cpu", num_threads=1, num_slots=64)
    )
    assert engine.info.kernels.startswith(expected)


def test_an_engine_reports_int8_and_torch_refuses_it(tiny_model_dir: Path) -> None:
    config = EngineConfig(
        model=str(tiny_model_dir), quantization="int8", dtype="bfloat16", device="cpu", num_threads=1, num_slots=64
    )
    assert build_engine(config).info.kernels == f"native {kernels.level()}, int8"
    with pytest.raises(ModelError, match="int8 needs the native kernels: --kernels is torch; use --quantization none"):
        build_engine(replace(config, kernels="torch"))
