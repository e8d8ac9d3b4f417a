"""Small vocabularies for tests, and the files that hold them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from gguf import GGUFWriter
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{{ message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "[INST]",
    "[/INST]",
    "<s>",
    "</s>",
]

_CORPUS = [
    "the cat sat on the mat and the dog ran to the gate",
    "user assistant system You are a helpful assistant. What is the weather in Paris today?",
    "한국어 문장입니다. 안녕하세요 세계",
    "👩‍👩‍👧‍👦 emoji 🐱🐱 naïve café",
    '{"name": "get_weather", "arguments": {"city": "Zürich"}} in 2024 12345',
] * 3


@cache
def byte_level_json() -> str:
    """A trained byte-level BPE whose vocabulary splits many characters, as tokenizer.json."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False, normalized=False)])
    return tokenizer.to_str()


def byte_level() -> Tokenizer:
    return Tokenizer.from_str(byte_level_json())


PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
WORDS = [
    "▁",
    "t",
    "h",
    "e",
    "c",
    "a",
    "s",
    "▁t",
    "he",
    "▁the",
    "at",
    "▁c",
    "▁cat",
    "ca",
    "cat",
    "▁▁",
    "th",
    "the",
    "é",
    "▁a",
    "sa",
    "as",
]


def sentencepiece_scores() -> dict[str, float]:
    """Pieces with scores: later pieces score lower, as training gives them; control and byte pieces have 0."""
    return dict.fromkeys(PIECES, 0.0) | {piece: -float(rank) for rank, piece in enumerate(sorted(WORDS, key=len, reverse=True))}


def sentencepiece(*, strip: bool = True) -> Tokenizer:
    """The same vocabulary as a tokenizers object that only decodes."""
    tokenizer = Tokenizer(
        models.BPE(vocab={piece: index for index, piece in enumerate(sentencepiece_scores())}, merges=[], byte_fallback=True)
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    steps: list[decoders.Decoder] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))
    return tokenizer


def write_directory(path: Path, tokenizer: Tokenizer, *, generation: dict[str, Any] | None = None, **config: Any) -> Path:
    """Writes a Hugging Face directory."""
    path.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    if generation is not None:
        (path / "generation_config.json").write_text(json.dumps(generation))
    return path


def write_gguf(path: Path, *, model: str, tokens: list[str], types: list[int], **values: Any) -> Path:
    """Writes a GGUF file without tensors. Other keys of tokenizer.ggml, such as `pre`, go into `values`."""
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    for key, value in values.items():
        name = f"tokenizer.ggml.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, str):
            writer.add_string("tokenizer.chat_template" if key == "chat_template" else name, value)
        else:
            writer.add_array(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def write_byte_level_gguf(path: Path, **values: Any) -> Path:
    """The byte-level vocabulary as GGUF; "<tool_call>" is user-defined."""
    model = json.loads(byte_level_json())["model"]
    tokens = [*model["vocab"], "<tool_call>"]
    types = [3 if token in SPECIAL else 1 for token in model["vocab"]] + [4]
    merges = [" ".join(pair) for pair in model["merges"]]
    return write_gguf(path, model="gpt2", tokens=tokens, types=types, merges=merges, **values)
