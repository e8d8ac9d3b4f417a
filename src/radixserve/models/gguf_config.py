"""ModelConfig from the metadata of a GGUF file. Keys: github.com/ggml-org/ggml, docs/gguf.md."""

from typing import Any

from radixserve.errors import ModelError
from radixserve.model_files import reading, shown
from radixserve.models.config import ModelConfig, RopeConfig
from radixserve.models.gguf_file import GGUFFile
from radixserve.models.gguf_keys import check_keys
from radixserve.models.rope import yarn_scale
from radixserve.text.gguf_tokenizer import end_ids

FAMILIES = ("llama", "qwen2", "qwen3")
ROPE_TYPES = ("none", "linear", "yarn")
FREQ_FACTORS = "rope_freqs.weight"
MAX_NUMBER = 1 << 40


def read_gguf_config(file: GGUFFile) -> ModelConfig:
    """Raises ModelError naming the key or value that is missing or not supported."""
    with reading(file.path):
        return _config(file)


def _config(file: GGUFFile) -> ModelConfig:
    family = file.metadata.get("general.architecture")
    if family not in FAMILIES:
        raise ModelError(
            f"{file.path} is a model of architecture {shown(repr(family))}: supported in GGUF files are {', '.join(FAMILIES)}"
        )
    keys = _Keys(file, family)
    if keys.get("expert_count"):
        raise ModelError(f"{file.path} is a mixture of experts: only dense models are supported")
    check_keys(file.metadata, family, file.path)
    num_layers, num_heads, hidden_size = (
        keys.count("block_count"),
        keys.count("attention.head_count"),
        keys.count("embedding_length"),
    )
    if num_layers > len(file.tensors):
        raise ModelError(
            f"{file.path} has {num_layers} layers and only {len(file.tensors)} tensors: it is broken; download it again"
        )
    return ModelConfig(
        architecture=family,
        num_layers=num_layers,
        hidden_size=hidden_size,
        intermediate_size=keys.count("feed_forward_length"),
        num_heads=num_heads,
        num_kv_heads=keys.count("attention.head_count_kv", num_heads),
        head_dim=_head_dim(keys, file, hidden_size // num_heads),
        vocab_size=_vocab_size(file),
        max_context_len=keys.count("context_length"),
        rms_norm_eps=keys.number("attention.layer_norm_rms_epsilon"),
        rope=_rope(keys, file),
        windows=(keys.window(),) * num_layers,
        tie_word_embeddings="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_up.bias" in file.tensors,
        qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
        eos_ids=_eos_ids(file.metadata),
    )


class _Keys:
    """Metadata of one architecture, with errors that name file and key. Without a default a key is required."""

    def __init__(self, file: GGUFFile, family: str) -> None:
        self._file = file
        self._family = family

    def get(self, key: str) -> Any:
        return self._file.metadata.get(f"{self._family}.{key}")

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key)
        if value is None:
            value = default
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < MAX_NUMBER:
            raise self._refusal(key, value)
        return float(value)

    def count(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if value != int(value):
            raise self._refusal(key, value)
        return int(value)

    def window(self) -> int | None:
        """Sliding window of all layers."""
        return self.count("attention.sliding_window") if self.get("attention.sliding_window") else None

    def _refusal(self, key: str, value: Any) -> ModelError:
        if isinstance(value, list):
            return ModelError(
                f"{self._file.path} has a {self._family}.{key} that differs by layer: only models of uniform layers are supported"
            )
        return ModelError(f"{self._file.path} has {self._family}.{key} {value!r}: it is broken; download it again")


def _head_dim(keys: _Keys, file: GGUFFile, default: int) -> int:
    head_dim = keys.count("attention.key_length", default)
    rotated = keys.count("rope.dimension_count", head_dim)
    if rotated != head_dim:
        raise ModelError(f"{file.path} rotates {rotated} of {head_dim} dimensions: only whole heads can be rotated")
    return head_dim


def _vocab_size(file: GGUFFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"{file.path} has no tensor token_embd.weight: it is broken; download it again")
    return embedding.shape[0]


def _rope(keys: _Keys, file: GGUFFile) -> RopeConfig:
    """As llama.cpp has it: a factor without a type is linear, and the factor had another name once."""
    theta, rope_type = keys.number("rope.freq_base", 10000.0), keys.get("rope.scaling.type") or "linear"
    if rope_type not in ROPE_TYPES:
        raise ModelError(f"{file.path} has rope scaling {rope_type!r}: supported in GGUF files are {', '.join(ROPE_TYPES)}")
    factors = tuple(file.read(FREQ_FACTORS).tolist()) if FREQ_FACTORS in file.tensors else ()
    factor = keys.number("rope.scaling.factor" if keys.get("rope.scaling.factor") else "rope.scale_linear", 1.0)
    if rope_type == "none" or factor == 1.0:
        return RopeConfig(theta=theta, freq_factors=factors)
    if rope_type == "linear":
        return RopeConfig(theta=theta, rope_type="linear", factor=factor, freq_factors=factors)
    return RopeConfig(
        theta=theta,
        rope_type="yarn",
        factor=factor,
        original_context_len=keys.count("rope.scaling.original_context_length", keys.count("context_length")),
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
        attention_factor=keys.number("rope.scaling.attn_factor", 1.0) * yarn_scale(factor, 1.0),
        freq_factors=factors,
    )


def _eos_ids(metadata: dict[str, Any]) -> tuple[int, ...]:
    prefix = "tokenizer.ggml."
    return tuple(sorted(end_ids({key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)})))
