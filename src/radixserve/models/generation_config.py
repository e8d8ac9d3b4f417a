"""Sampling defaults that a model's files state: generation_config.json, or `general.sampling.*` in the header of a GGUF file.

As in vLLM and SGLang a key that is absent, or null, is neutral: transformers' own defaults, such as top_k 50, are not taken. As in
transformers `"do_sample": false` is greedy, whatever the temperature. Lengths (`max_new_tokens`) are the requests' affair.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from radixserve.errors import InvalidRequestError, ModelError
from radixserve.gguf_header import read_gguf_header
from radixserve.sampling_defaults import SamplingDefaults
from radixserve.sampling_params import SamplingParams

logger = logging.getLogger(__name__)

REMEDY = "correct the file, or start with --sampling-defaults neutral"
HF_FILE = "generation_config.json"
HF_KEYS = {name: name for name in SamplingDefaults.__struct_fields__}
GGUF_KEYS = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}
"""Keys of the files, and the fields that they state. GGUF: github.com/ggml-org/llama.cpp, gguf-py/gguf/constants.py."""

NOT_TAKEN: Mapping[str, Any] = {
    "num_beams": 1,
    "penalty_alpha": 0,
    "typical_p": 1,
    "top_h": None,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "bad_words_ids": None,
    "sequence_bias": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "exponential_decay_length_penalty": None,
    "guidance_scale": 1,
    "watermarking_config": None,
    "general.sampling.xtc_probability": 0,
    "general.sampling.mirostat": 0,
}
"""Keys that change what is sampled and aren't honoured, with the values that mean nothing (null never does). They are logged."""


def read_sampling_defaults(path: Path) -> SamplingDefaults:
    """Of the Hugging Face directory or GGUF file at `path`. Raises ModelError naming file and key of a value that can't be."""
    if path.is_dir():
        source, values, keys = path / HF_FILE, _read_json(path / HF_FILE), HF_KEYS
    else:
        source, values, keys = path, read_gguf_header(path).metadata, GGUF_KEYS
    stated: dict[str, Any] = {}
    for key, field in keys.items():
        if (value := values.get(key)) is not None:
            stated[field] = _checked(value, field, f"{source} has {key} {value!r:.60}")
    sampled = values.get("do_sample")
    if not isinstance(sampled, bool | None):
        raise ModelError(f"{source} has do_sample {sampled!r:.60}: true or false is needed; {REMEDY}")
    if sampled is False:
        stated["temperature"] = 0.0
    if ignored := [key for key, neutral in NOT_TAKEN.items() if values.get(key) not in (None, neutral, [])]:
        logger.warning("%s states %s: not honoured", source, ", ".join(ignored))
    return SamplingDefaults(**stated)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"could not read {path}: {error}") from error
    if not isinstance(values, dict):
        raise ModelError(f"{path} does not hold an object: the file is broken")
    return values


def _checked(value: Any, field: str, what: str) -> Any:
    """The value as SamplingParams has it. `what`: words for it in an error."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelError(f"{what}: a number is needed; {REMEDY}")
    if not -(2**63) < value < 2**63:
        raise ModelError(f"{what}: out of range; {REMEDY}")
    if field == "top_k" and value != int(value):
        raise ModelError(f"{what}: a whole number is needed; {REMEDY}")
    if field == "top_k":
        value = 0 if value == -1 else int(value)
    elif np.float32(value) == value:
        value = float(str(np.float32(value)))  # a GGUF header has 0.7 as 0.699999988
    params: Any = {field: value}
    try:
        SamplingParams(**params).validate(1)
    except InvalidRequestError as error:
        reason = error.message.partition(": ")[2]
        raise ModelError(f"{what}: {reason}; {REMEDY}") from error
    return value
