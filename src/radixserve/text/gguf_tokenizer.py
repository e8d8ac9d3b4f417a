"""A tokenizer from the metadata of a GGUF file: byte-level BPE ("gpt2"), and SentencePiece BPE with byte fallback ("llama").

A GGUF file names its pre-tokenizer instead of holding it. Only names whose splitting rule is known are taken: with a wrong rule
a model still answers, only worse.
"""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from radixserve.errors import ModelError
from radixserve.gguf_header import read_gguf_header
from radixserve.model_files import reading, words
from radixserve.text.spec import TokenizerSpec

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
"""Values of tokenizer.ggml.token_type that matter here."""

_ROLES = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_END_TEXTS = words(
    """
    <|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s> <|eom_id|> <EOT>
    _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance>
    """
)
"""Tokens that end an answer whatever the keys say: many files name none for the end of a turn. As in llama.cpp
(src/llama-vocab.cpp)."""
_HTML_TAG = "</s>"
"""The one of them that is plain text in some vocabularies (Qwen's), and is no end there."""

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3_WORDS = _WORDS.format(digits=r"\p{N}{1,3}")
_QWEN2_WORDS = _WORDS.format(digits=r"\p{N}")

_LLAMA3_NAMES = frozenset({"llama3", "llama-v3", "llama-bpe"})
_QWEN2_NAMES = frozenset({"qwen2", "deepseek-r1-qwen"})
_GPT2_NAMES = frozenset({"gpt-2", "default"})


def load_gguf(path: Path) -> TokenizerSpec:
    """Builds the tokenizer of the GGUF file at `path`; raises ModelError if it is missing, damaged or of an unsupported kind."""
    with reading(path):
        return _load(path)


def _load(path: Path) -> TokenizerSpec:
    metadata = read_gguf_header(path).metadata
    prefix = "tokenizer.ggml."
    values = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    kind = values.get("model")
    if kind == "gpt2":
        backend = _byte_level(values, path)
        adds_bos = values.get("add_bos_token", values.get("pre") in _LLAMA3_NAMES)
    elif kind == "llama":
        backend = _sentencepiece(values, path)
        adds_bos = values.get("add_bos_token", True)
    else:
        raise ModelError(f"{path} has a tokenizer of kind {kind!r}: supported are 'gpt2' and 'llama'; use a Hugging Face directory")
    tokens: list[str] = values["tokens"]
    _add_special_tokens(backend, tokens, values.get("token_type", []))
    bos_id = values.get("bos_token_id")
    if adds_bos and bos_id is not None:
        bos = tokens[bos_id]
        backend.post_processor = processors.TemplateProcessing(single=f"{bos}:0 $A:0", special_tokens=[(bos, bos_id)])
    return TokenizerSpec(
        backend=backend,
        bos_id=bos_id,
        eos_ids=end_ids(values),
        special_tokens={name: tokens[values[key]] for name, key in _ROLES.items() if key in values},
        templates=_templates(metadata),
    )


def end_ids(values: dict[str, Any]) -> frozenset[int]:
    """Tokens that end an answer. `values`: the keys of `tokenizer.ggml`."""
    tokens = values.get("tokens", [])
    by_key = {values[key] for key in _END_KEYS if isinstance(values.get(key), int) and 0 <= values[key] < len(tokens)}
    by_text = {index for index, token in enumerate(tokens) if token in _END_TEXTS}
    types = values.get("token_type", [])
    plain = {index for index in by_text if tokens[index] == _HTML_TAG and types[index : index + 1] == [_NORMAL]}
    return frozenset(by_key | (by_text - plain))


def _templates(metadata: dict[str, Any]) -> dict[str, str]:
    prefix = "tokenizer.chat_template"
    named = {key.removeprefix(prefix).lstrip("."): value for key, value in metadata.items() if key.startswith(prefix + ".")}
    return named | ({"default": metadata[prefix]} if prefix in metadata else {})


def _add_special_tokens(backend: Backend, tokens: list[str], types: list[int]) -> None:
    """Unused entries stay plain vocabulary."""
    kinds = list(zip(tokens, types, strict=True))
    control = [token for token, kind in kinds if kind in (_UNKNOWN, _CONTROL)]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    backend.add_tokens([AddedToken(token, special=False, normalized=False) for token, kind in kinds if kind == _USER_DEFINED])


def _byte_level(values: dict[str, Any], path: Path) -> Backend:
    if "merges" not in values:
        raise ModelError(f"{path} has a 'gpt2' tokenizer without merges: use the model's Hugging Face directory")
    pre = values.get("pre", "default")
    vocab = {token: index for index, token in enumerate(values["tokens"])}
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in values["merges"])]
    backend = Backend(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre in _LLAMA3_NAMES))
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre == "smollm":
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    elif pre in _LLAMA3_NAMES:
        backend.pre_tokenizer = _split(_LLAMA3_WORDS)
    elif pre in _QWEN2_NAMES:
        backend.normalizer = normalizers.NFC()
        backend.pre_tokenizer = _split(_QWEN2_WORDS)
    elif pre in _GPT2_NAMES:
        backend.pre_tokenizer = gpt2
    else:
        known = ", ".join(sorted({"smollm"} | _LLAMA3_NAMES | _QWEN2_NAMES | _GPT2_NAMES))
        raise ModelError(f"{path} has the pre-tokenizer {pre!r}: supported are {known}; use the model's Hugging Face directory")
    backend.decoder = decoders.ByteLevel()
    return backend


def _split(words: str) -> pre_tokenizers.Sequence:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(words), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def _sentencepiece(values: dict[str, Any], path: Path) -> Backend:
    """SentencePiece merges whichever adjacent pair makes the piece of highest score; as ranked merges that is every split of a
    piece into two pieces, by falling score (as in transformers' SentencePieceExtractor)."""
    tokens, scores = values["tokens"], values.get("scores")
    if not scores:
        raise ModelError(f"{path} has a 'llama' tokenizer without scores: use the model's Hugging Face directory")
    vocab = {token: index for index, token in enumerate(tokens)}
    backend = Backend(models.BPE(vocab=vocab, merges=_merges(vocab, scores), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    spaces: list[normalizers.Normalizer] = [normalizers.Replace(" ", "▁")]
    ending: list[decoders.Decoder] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if values.get("add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend("▁"))
        ending.append(decoders.Strip(" ", 1, 0))
    backend.normalizer = normalizers.Sequence(spaces)
    backend.decoder = decoders.Sequence(ending)
    return backend


def _merges(vocab: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    ranked = [
        (-scores[index], vocab[piece[:cut]], vocab[piece[cut:]])
        for piece, index in vocab.items()
        for cut in range(1, len(piece))
        if piece[:cut] in vocab and piece[cut:] in vocab
    ]
    pieces = list(vocab)
    return [(pieces[left], pieces[right]) for _, left, right in sorted(ranked)]
