"""Tiny models with random weights, written to a folder in the form of a Hugging Face checkpoint.

They answer nonsense, but like a real model: greedy answers vary from token to token and depend on every token of the prompt.
The tokenizer is byte-level without merges: one token a byte, then three special tokens.
"""

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCAB_SIZE = 256 + len(SPECIALS)
EOS_ID = VOCAB_SIZE - 1
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    "llama3": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rope_scaling": LLAMA3_ROPE},
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 24},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 32},
}


def make_tiny_model(
    directory: Path, family: str = "llama", *, seed: int = 0, vocab_size: int = VOCAB_SIZE, **config_overrides: Any
) -> Path:
    """Writes config, weights (float32) and tokenizer of a model of `family` (a key of FAMILIES) and returns `directory`.

    `config_overrides` go into config.json as they are. The same arguments give the same weights.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = _config(family, vocab_size) | config_overrides
    _write_json(directory / "config.json", config)
    _write_json(directory / "generation_config.json", {"eos_token_id": [EOS_ID]})
    save_file(_weights(config, seed), directory / "model.safetensors", metadata={"format": "pt"})
    _write_tokenizer(directory)
    return directory


def _config(family: str, vocab_size: int) -> dict[str, Any]:
    common = {
        "vocab_size": vocab_size,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": False,
        "bos_token_id": 256,
        "eos_token_id": EOS_ID,
    }
    return common | FAMILIES[family]


def _weights(config: dict[str, Any], seed: int) -> dict[str, torch.Tensor]:
    """Scaled so that each layer changes the stream by about its own size, and logits have a deviation of a few units."""
    generator = torch.Generator().manual_seed(seed)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim", hidden // config["num_attention_heads"])
    q_size, kv_size = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim

    def matrix(rows: int, columns: int, gain: float = 1.0) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * (gain / math.sqrt(columns))

    def bias(size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator)

    def norm(size: int) -> torch.Tensor:
        return 1 + 0.2 * torch.randn(size, generator=generator)

    tensors = {"model.embed_tokens.weight": matrix(config["vocab_size"], hidden, 3.0), "model.norm.weight": norm(hidden)}
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = matrix(config["vocab_size"], hidden, 3.0)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        tensors[prefix + "input_layernorm.weight"] = norm(hidden)
        tensors[prefix + "post_attention_layernorm.weight"] = norm(hidden)
        for name, size in (("q", q_size), ("k", kv_size), ("v", kv_size)):
            tensors[f"{prefix}self_attn.{name}_proj.weight"] = matrix(size, hidden, 1.5)
            if config["model_type"] == "qwen2" or config.get("attention_bias"):
                tensors[f"{prefix}self_attn.{name}_proj.bias"] = bias(size)
        if config["model_type"] == "qwen3":
            tensors[prefix + "self_attn.q_norm.weight"] = norm(head_dim)
            tensors[prefix + "self_attn.k_norm.weight"] = norm(head_dim)
        tensors[prefix + "self_attn.o_proj.weight"] = matrix(hidden, q_size, 2.0)
        if config.get("attention_bias"):
            tensors[prefix + "self_attn.o_proj.bias"] = bias(hidden)
        tensors[prefix + "mlp.gate_proj.weight"] = matrix(inner, hidden, 1.5)
        tensors[prefix + "mlp.up_proj.weight"] = matrix(inner, hidden, 1.5)
        tensors[prefix + "mlp.down_proj.weight"] = matrix(hidden, inner, 2.0)
        if config.get("mlp_bias"):
            tensors |= {
                f"{prefix}mlp.{name}_proj.bias": bias(size) for name, size in (("gate", inner), ("up", inner), ("down", hidden))
            }
    return tensors


def _write_tokenizer(directory: Path) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate((*alphabet, *SPECIALS))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    tokenizer.save(str(directory / "tokenizer.json"))
    _write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|endoftext|>",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "clean_up_tokenization_spaces": False,
            "model_max_length": 1024,
            "chat_template": CHATML,
        },
    )


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")
