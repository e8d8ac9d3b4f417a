"""What the decoder promises beyond parity: which logits it computes, and that weights are replaced whole or not at all."""

from pathlib import Path

import pytest
import torch

from radixserve.errors import ModelError
from radixserve.models.loader import choose_dtype, load_model
from tests.sequences import Sequences
from tests.tiny_models import make_tiny_model

CPU = torch.device("cpu")
PROMPT = torch.arange(40) * 5 % 250


def test_logits_are_computed_for_the_named_rows_alone(tiny_model_dir: Path) -> None:
    decoder = load_model(tiny_model_dir, torch.float64, CPU)
    every = Sequences(decoder, 1).extend({0: PROMPT})
    some = Sequences(decoder, 1).extend({0: PROMPT}, torch.tensor([39, 3]))
    torch.testing.assert_close(some, every[[39, 3]])
    assert every.shape == (40, decoder.config.vocab_size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_that_needs_no_logits_still_stores_its_kv(tiny_model_dir: Path, dtype: torch.dtype) -> None:
    decoder = load_model(tiny_model_dir, dtype, CPU)
    chunked = Sequences(decoder, 1)
    none = chunked.extend({0: PROMPT[:39]}, torch.tensor([], dtype=torch.int64))
    assert none.shape == (0, decoder.config.vocab_size)
    last = chunked.extend({0: PROMPT[39:]})
    expected = Sequences(decoder, 1).extend({0: PROMPT})[39:]
    torch.testing.assert_close(last, expected, rtol=0, atol=1e-4 if dtype == torch.float32 else 0.3)


def test_float64_stays_float64_and_other_dtypes_give_float32(tiny_model_dir: Path) -> None:
    exact = Sequences(load_model(tiny_model_dir, torch.float64, CPU), 1).extend({0: PROMPT})
    single = Sequences(load_model(tiny_model_dir, torch.float32, CPU), 1).extend({0: PROMPT})
    half = Sequences(load_model(tiny_model_dir, torch.bfloat16, CPU), 1).extend({0: PROMPT})
    assert (exact.dtype, single.dtype, half.dtype) == (torch.float64, torch.float32, torch.float32)
    assert (single - exact).abs().max() < 1e-4
    assert (half - exact).abs().max() < 0.1 * exact.abs().max()


def test_weights_are_replaced(tiny_model_dir: Path, tmp_path: Path) -> None:
    decoder = load_model(tiny_model_dir, torch.float64, CPU)
    other = make_tiny_model(tmp_path, seed=1, eos_token_id=5)
    before = Sequences(decoder, 1).extend({0: PROMPT})
    decoder.put_weights(decoder.read_weights(other))
    after = Sequences(decoder, 1).extend({0: PROMPT})
    assert torch.equal(after, Sequences(load_model(other, torch.float64, CPU), 1).extend({0: PROMPT}))
    assert not torch.allclose(before, after)


def test_weights_of_another_shape_are_refused_and_nothing_changes(tiny_model_dir: Path, tmp_path: Path) -> None:
    decoder = load_model(tiny_model_dir, torch.float64, CPU)
    before = Sequences(decoder, 1).extend({0: PROMPT})
    make_tiny_model(tmp_path / "deeper", seed=1, num_hidden_layers=3)
    with pytest.raises(ModelError, match="num_layers 3 instead of 2"):
        decoder.put_weights(decoder.read_weights(tmp_path / "deeper"))
    broken = make_tiny_model(tmp_path / "broken", seed=1) / "model.safetensors"
    broken.write_bytes(broken.read_bytes()[:-10])
    with pytest.raises(ModelError, match="broken"):
        decoder.put_weights(decoder.read_weights(tmp_path / "broken"))
    assert torch.equal(Sequences(decoder, 1).extend({0: PROMPT}), before)


def test_a_served_model_does_not_change_with_its_file(tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path) / "model.safetensors"
    decoder = load_model(tmp_path, torch.float32, CPU)
    before = Sequences(decoder, 1).extend({0: PROMPT})
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(bytes(path.stat().st_size - 4096))
    assert torch.equal(Sequences(decoder, 1).extend({0: PROMPT}), before)


def test_float16_is_refused_on_a_cpu() -> None:
    with pytest.raises(ModelError, match="bfloat16 or float32"):
        choose_dtype("float16", CPU)


def test_auto_is_a_dtype_the_cpu_computes_in() -> None:
    assert choose_dtype("auto", CPU) in (torch.bfloat16, torch.float32)
    assert choose_dtype("auto", torch.device("cuda")) == torch.bfloat16
    assert choose_dtype("float64", CPU) == torch.float64
