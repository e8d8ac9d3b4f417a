"""Tokens that only the files around tokenizer.json name have the ids and flags that transformers gives them."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from radixserve.errors import ModelError
from radixserve.text.tokenizer import Tokenizer
from tests.unit.text.vocabularies import byte_level, write_directory

FIRST = byte_level().get_vocab_size()
TEXTS = ("a <x> b", "a  <x>  <y>c", "q<x>q<z>", "<x>", "<y> <im_x>", "\n<x>\n the <tool_call> <s>cat")


def token(content: str, **flags: bool) -> dict[str, Any]:
    """As tokenizer_config.json writes it."""
    plain = {"special": True, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    return {"content": content} | plain | flags


CASES: dict[str, dict[str, dict[str, Any]]] = {
    "by number": {"tokenizer_config.json": {"added_tokens_decoder": {str(FIRST + 1): token("<y>"), str(FIRST): token("<x>")}}},
    **{
        flag: {"tokenizer_config.json": {"added_tokens_decoder": {str(FIRST): token("<x>", **{flag: True})}}}
        for flag in ("lstrip", "rstrip", "single_word", "normalized")
    },
    "not special": {"tokenizer_config.json": {"added_tokens_decoder": {str(FIRST): token("<x>", special=False)}}},
    "other flags than tokenizer.json": {
        "tokenizer_config.json": {"added_tokens_decoder": {str(FIRST - 1): token("<tool_call>", lstrip=True)}}
    },
    "in the order of the list": {"tokenizer_config.json": {"additional_special_tokens": ["<y>", "<x>", "<im_x>"]}},
    "under the new name": {"tokenizer_config.json": {"extra_special_tokens": ["<y>", "<x>"]}},
    "named": {"tokenizer_config.json": {"extra_special_tokens": {"image_token": "<y>"}, "audio_token": "<x>"}},
    "roles": {"tokenizer_config.json": {"pad_token": "<x>", "bos_token": "<y>", "additional_special_tokens": ["<z>"]}},
    "old files": {
        "added_tokens.json": {"<y>": FIRST + 1, "<x>": FIRST},
        "special_tokens_map.json": {"extra_special_tokens": ["<x>"], "pad_token": token("<z>", rstrip=True)},
    },
    "old files beside the new list": {
        "tokenizer_config.json": {"added_tokens_decoder": {str(FIRST): token("<x>")}},
        "added_tokens.json": {"<y>": FIRST + 1},
        "special_tokens_map.json": {"additional_special_tokens": ["<z>"]},
    },
}


@pytest.mark.parametrize("name", CASES)
def test_added_tokens_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    write_directory(tmp_path, byte_level(), tokenizer_class="PreTrainedTokenizerFast")
    for file, values in CASES[name].items():
        path = tmp_path / file
        path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | values))
    theirs, ours = PreTrainedTokenizerFast.from_pretrained(tmp_path), Tokenizer.load(tmp_path)
    assert ours.vocab_size == len(theirs)
    for text in TEXTS:
        assert ours.encode(text).tolist() == theirs(text)["input_ids"], text
    added = theirs.added_tokens_decoder
    assert ours.special_ids == {token_id for token_id, known in added.items() if known.special}


def test_a_tokenizer_that_splits_special_tokens_is_refused(tmp_path: Path) -> None:
    write_directory(tmp_path, byte_level(), split_special_tokens=True)
    with pytest.raises(ModelError, match="split_special_tokens"):
        Tokenizer.load(tmp_path)
