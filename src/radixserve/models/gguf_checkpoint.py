"""Weights of a GGUF file, dequantised, under their Hugging Face names."""

import re

import numpy as np
import torch

from radixserve.models.config import ModelConfig
from radixserve.models.gguf_config import FREQ_FACTORS
from radixserve.models.gguf_file import GGUFFile

TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


class GGUFCheckpoint:
    """Tensors that have no Hugging Face name keep their own, so that the check reports them as unknown."""

    def __init__(self, file: GGUFFile, config: ModelConfig) -> None:
        self._file = file
        self._config = config
        self._names = {_hf_name(name): name for name in file.tensors if name != FREQ_FACTORS}
        self.shapes = {name: file.tensors[own].shape for name, own in self._names.items()}

    def read(self, name: str) -> torch.Tensor:
        values = self._file.read(self._names[name])
        if self._config.architecture == "llama" and ".self_attn.q_proj." in name:
            values = _unpermute(values, self._config.num_heads)
        elif self._config.architecture == "llama" and ".self_attn.k_proj." in name:
            values = _unpermute(values, self._config.num_kv_heads)
        return torch.from_numpy(np.require(values, requirements=["C", "W"]))


def _hf_name(name: str) -> str:
    if match := LAYER_TENSOR.fullmatch(name):
        layer, part, kind = match.groups()
        return f"model.layers.{layer}.{IN_LAYER[part]}.{kind}" if part in IN_LAYER else name
    part, _, kind = name.rpartition(".")
    return f"{TOP[part]}.{kind}" if part in TOP else name


def _unpermute(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """GGUF files of llama pair neighbouring dimensions of a head in the rotation; we pair i with i + head_dim / 2."""
    half = rows.shape[0] // num_heads // 2
    return rows.reshape(num_heads, half, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
