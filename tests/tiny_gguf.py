"""Tiny models as GGUF files, made from the Hugging Face directories of `tests.tiny_models`."""

import json
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from safetensors.torch import load_file

from radixserve.models.gguf_checkpoint import IN_LAYER, TOP
from radixserve.models.hf_config import read_hf_config
from radixserve.models.rope import inverse_frequencies


def make_tiny_gguf(path: Path, source: Path, dtype: GGMLQuantizationType = GGMLQuantizationType.F32) -> Path:
    """Writes the model in the directory `source` to the file `path` and returns it. Norms and biases stay float32."""
    raw = json.loads((source / "config.json").read_text())
    config, family = read_hf_config(source), raw["model_type"]
    writer = GGUFWriter(path, family)
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.max_context_len)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope.theta)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token {index}" for index in range(config.vocab_size)])
    writer.add_eos_token_id(config.eos_ids[0])
    if config.rope.rope_type == "llama3":
        plain = 1.0 / config.rope.theta ** (torch.arange(0, config.head_dim, 2) / config.head_dim)
        writer.add_tensor("rope_freqs.weight", (plain / inverse_frequencies(config.rope, config.head_dim)).numpy())
    heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads} if family == "llama" else {}
    for name, tensor in load_file(source / "model.safetensors").items():
        values = tensor.numpy()
        for part, num_heads in heads.items():
            values = _permute(values, num_heads) if f".{part}." in name else values
        kind = dtype if values.ndim > 1 else GGMLQuantizationType.F32
        writer.add_tensor(_gguf_name(name), quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_name(name: str) -> str:
    part, _, kind = name.rpartition(".")
    if part.startswith("model.layers."):
        layer, _, inner = part.removeprefix("model.layers.").partition(".")
        return f"blk.{layer}.{next(own for own, hf in IN_LAYER.items() if hf == inner)}.{kind}"
    return f"{next(own for own, hf in TOP.items() if hf == part)}.{kind}"


def _permute(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows i and i + half of each head become neighbours."""
    return rows.reshape(num_heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
