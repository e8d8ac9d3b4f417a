"""Opens what `registry.resolve` found: a Hugging Face directory or a GGUF file."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from radixserve.models.checkpoint import Checkpoint, check
from radixserve.models.config import ModelConfig
from radixserve.models.gguf_checkpoint import GGUFCheckpoint
from radixserve.models.gguf_config import read_gguf_config
from radixserve.models.gguf_file import GGUFFile
from radixserve.models.hf_checkpoint import HFCheckpoint
from radixserve.models.hf_config import read_hf_config

OpenModel = Callable[[Path], tuple[ModelConfig, Checkpoint]]


def load_config(path: Path) -> ModelConfig:
    """The shape of the model at `path`. Reads no weights. Raises ModelError when it is broken or not supported."""
    if path.is_dir():
        config = read_hf_config(path)
        return _untied(config, HFCheckpoint(path)) if config.tie_word_embeddings else config
    return read_gguf_config(GGUFFile(path))


def open_checkpoint(path: Path) -> tuple[ModelConfig, Checkpoint]:
    """Config and weights, whose names and shapes are known to fit it. Raises ModelError when they don't, or as `load_config`."""
    checkpoint: Checkpoint
    if path.is_dir():
        checkpoint = HFCheckpoint(path)
        config = _untied(read_hf_config(path), checkpoint)
    else:
        file = GGUFFile(path)
        config = read_gguf_config(file)
        checkpoint = GGUFCheckpoint(file, config)
    check(checkpoint, config)
    return config, checkpoint


def _untied(config: ModelConfig, checkpoint: Checkpoint) -> ModelConfig:
    """A head that is said to be tied, and is stored with other numbers, is a head of its own, as in transformers."""
    head, table = "lm_head.weight", "model.embed_tokens.weight"
    if not config.tie_word_embeddings or head not in checkpoint.shapes or table not in checkpoint.shapes:
        return config
    return config if torch.equal(checkpoint.read(head), checkpoint.read(table)) else replace(config, tie_word_embeddings=False)
