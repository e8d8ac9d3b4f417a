"""Opens what `registry.resolve` found: a Hugging Face directory or a GGUF file."""

from collections.abc import Callable
from pathlib import Path

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
    return read_hf_config(path) if path.is_dir() else read_gguf_config(GGUFFile(path))


def open_checkpoint(path: Path) -> tuple[ModelConfig, Checkpoint]:
    """Config and weights, whose names and shapes are known to fit it. Raises ModelError when they don't, or as `load_config`."""
    checkpoint: Checkpoint
    if path.is_dir():
        config, checkpoint = read_hf_config(path), HFCheckpoint(path)
    else:
        file = GGUFFile(path)
        config = read_gguf_config(file)
        checkpoint = GGUFCheckpoint(file, config)
    check(checkpoint, config)
    return config, checkpoint
