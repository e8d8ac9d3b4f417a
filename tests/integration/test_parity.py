"""Our logits against those of transformers, in float32, through the real attention backend and the real pool."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from radixserve.models.decoder import AnyDecoder
from radixserve.models.loader import load_model
from tests.sequences import Sequences
from tests.tiny_models import LLAMA3_ROPE, VOCAB_SIZE, make_tiny_model

TOLERANCE = 1e-4
"""Of the largest absolute logit."""
CPU = torch.device("cpu")

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama3 rope": ("llama3", {}),
    "llama3 rope in the form of transformers 5": ("llama", {"rope_parameters": LLAMA3_ROPE | {"rope_theta": 500.0}}),
    "linear rope": ("llama", {"rope_scaling": {"type": "linear", "factor": 3.0}}),
    "yarn": ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}}),
    "yarn, every field": (
        "llama",
        {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 8.0,
                "original_max_position_embeddings": 128,
                "beta_fast": 16.0,
                "beta_slow": 2.0,
                "mscale": 0.8,
                "mscale_all_dim": 0.5,
                "truncate": False,
            }
        },
    ),
    "mistral, window 24": ("mistral", {}),
    "mistral without a window": ("mistral", {"sliding_window": None}),
    "qwen2, tied": ("qwen2", {}),
    "qwen2, window in the upper layer": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1, "tie_word_embeddings": False},
    ),
    "qwen3": ("qwen3", {}),
    "qwen3, window in the lower layer": (
        "qwen3",
        {
            "use_sliding_window": True,
            "sliding_window": 16,
            "layer_types": ["sliding_attention", "full_attention"],
            "attention_bias": True,
        },
    ),
}


def assert_close(ours: torch.Tensor, reference: torch.Tensor) -> None:
    difference, largest = (ours - reference).abs().max().item(), reference.abs().max().item()
    assert difference <= TOLERANCE * largest, f"logits differ by {difference}, the largest is {largest}"


@torch.no_grad()
def check_against(reference: torch.nn.Module, decoder: AnyDecoder, vocab_size: int) -> None:
    """Two sequences: whole, then in chunks and single tokens, mixed in one batch."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(vocab_size, (100,), generator=generator)
    second = torch.randint(vocab_size, (41,), generator=generator)
    expected = [reference(ids[None]).logits[0] for ids in (first, second)]

    whole = Sequences(decoder, 2)
    assert_close(whole.extend({0: first, 1: second}), torch.cat(expected))

    chunked = Sequences(decoder, 2)
    assert_close(chunked.extend({1: first[:70]}), expected[0][:70])
    assert_close(chunked.extend({0: second[:40], 1: first[70:71]}), torch.cat((expected[1][:40], expected[0][70:71])))
    assert_close(chunked.extend({1: first[71:99], 0: second[40:]}), torch.cat((expected[0][71:99], expected[1][40:])))
    assert_close(chunked.extend({1: first[99:]}), expected[0][99:])


@pytest.mark.parametrize("name", MODELS)
def test_logits_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    family, overrides = MODELS[name]
    path = make_tiny_model(tmp_path, family, **overrides)
    reference = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    check_against(reference, load_model(path, torch.float32, CPU), VOCAB_SIZE)


def test_logits_of_the_default_model_equal_those_of_transformers(default_model_dir: Path) -> None:
    """The reference dequantises the same file by itself; its config is written out here."""
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_theta=100000.0,
        tie_word_embeddings=True,
    )
    reference = LlamaForCausalLM(config)
    tensors = load_gguf_checkpoint(str(default_model_dir), return_tensors=True, model_to_load=reference)["tensors"]
    assert reference.load_state_dict(tensors, strict=False).missing_keys == ["lm_head.weight"]  # tied
    check_against(reference, load_model(default_model_dir, torch.float32, CPU), config.vocab_size)
