"""Incremental decoding: whole characters, early marks for what is no text, the context of the prompt."""

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from radixserve.errors import ModelError
from radixserve.text.detokenizer import Detokenizer
from radixserve.text.token_bytes import TokenBytes
from tests.unit.text.vocabularies import PIECES, byte_level, sentencepiece

SPM = TokenBytes(sentencepiece())
SPM_SPECIAL = frozenset({0, 1, 2})
SPM_IDS = sentencepiece().get_vocab()


def byte_ids(raw: bytes) -> list[int]:
    return [PIECES.index(f"<0x{byte:02X}>") for byte in raw]


@pytest.mark.parametrize("text", ["한국어", "👩‍👩‍👧‍👦", "naïve", "a\u0301"])
def test_a_character_comes_when_its_last_byte_does(text: str) -> None:
    detokenizer = Detokenizer(SPM, SPM_SPECIAL, byte_ids(b"x"))
    shown = ""
    for seen, token_id in enumerate(byte_ids(text.encode()), 1):
        shown += detokenizer.push([token_id])
        assert shown == text.encode()[:seen].decode(errors="ignore")
    assert detokenizer.finish() == ""


def test_a_text_that_ends_inside_a_character_gets_one_mark() -> None:
    detokenizer = Detokenizer(SPM, SPM_SPECIAL, byte_ids(b"x"))
    assert detokenizer.push(byte_ids("a👩".encode()[:-1])) == "a"
    assert detokenizer.finish() == "\ufffd"


def test_invalid_bytes_hold_nothing_back() -> None:
    detokenizer = Detokenizer(SPM, SPM_SPECIAL, byte_ids(b"x"))
    assert detokenizer.push(byte_ids(b"\xff\xff")) == "\ufffd\ufffd"
    assert detokenizer.push(byte_ids(b"\xf0\x9f")) == ""
    assert detokenizer.push(byte_ids(b"a")) == "\ufffda"
    assert detokenizer.finish() == ""


def test_an_output_may_begin_inside_a_character() -> None:
    raw = "👩".encode()
    for cut in (1, 2, 3):
        detokenizer = Detokenizer(SPM, SPM_SPECIAL, [*byte_ids(b"abc" + raw[:cut]), 1])
        assert detokenizer.push(byte_ids(raw[cut:])) + detokenizer.finish() == "👩"


def test_special_tokens_have_no_text() -> None:
    tokens = TokenBytes(byte_level())
    backend = byte_level()
    special = frozenset(index for index, token in backend.get_added_tokens_decoder().items() if token.special)
    detokenizer = Detokenizer(tokens, special, [])
    assert detokenizer.push(backend.encode("a<|im_end|>b<tool_call>").ids) == "ab<tool_call>"


def test_the_first_space_of_a_text_is_stripped_where_sentencepiece_added_it() -> None:
    the, cat = SPM_IDS["▁the"], SPM_IDS["▁cat"]
    assert Detokenizer(SPM, SPM_SPECIAL, [1]).push([the, cat]) == "the cat"
    assert Detokenizer(SPM, SPM_SPECIAL, [1, the]).push([cat]) == " cat"
    plain = TokenBytes(sentencepiece(strip=False))
    assert Detokenizer(plain, SPM_SPECIAL, [1]).push([the]) == " the"
    empty_first = Detokenizer(SPM, SPM_SPECIAL, [1])
    assert [empty_first.push([2]), empty_first.push([the]), empty_first.push([cat])] == ["", "the", " cat"]


def test_an_unknown_decoder_is_refused() -> None:
    backend = Backend(models.BPE())
    with pytest.raises(ModelError, match="decoder"):
        TokenBytes(backend)
    backend.decoder = decoders.WordPiece()
    with pytest.raises(ModelError, match="WordPiece"):
        TokenBytes(backend)
