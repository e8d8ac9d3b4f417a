"""Tokenizers built from GGUF metadata."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixserve.errors import ModelError
from radixserve.gguf_header import read_gguf_header
from radixserve.text.tokenizer import Tokenizer
from tests.unit.text.vocabularies import PIECES, sentencepiece_scores, write_byte_level_gguf, write_gguf

SCORES = sentencepiece_scores()
IDS = {piece: index for index, piece in enumerate(SCORES)}


def naive_sentencepiece(text: str) -> list[int]:
    """Merges the adjacent pair whose piece scores highest, leftmost first, until none is left; unknown characters become bytes."""
    pieces = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        pairs = [
            (-SCORES[left + right], place)
            for place, (left, right) in enumerate(itertools.pairwise(pieces))
            if left + right in SCORES
        ]
        if not pairs:
            break
        place = min(pairs)[1]
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
    return [
        token
        for piece in pieces
        for token in ([IDS[piece]] if piece in IDS else [IDS[f"<0x{byte:02X}>"] for byte in piece.encode()])
    ]


@pytest.fixture(scope="module")
def sentencepiece_gguf(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    types = [2, 3, 3, *[6] * 256, *[1] * (len(SCORES) - len(PIECES))]
    file = tmp_path_factory.mktemp("spm") / "model.gguf"
    write_gguf(file, model="llama", tokens=list(SCORES), types=types, scores=list(SCORES.values()), bos_token_id=1, eos_token_id=2)
    return Tokenizer.load(file)


@given(st.text(alphabet="theca s é한", max_size=30))
def test_sentencepiece_merges_by_score(sentencepiece_gguf: Tokenizer, text: str) -> None:
    ids = sentencepiece_gguf.encode(text)
    assert ids.tolist() == [1, *naive_sentencepiece(text)]
    assert sentencepiece_gguf.decode(ids) == text


@given(st.text(alphabet="theca s é한", max_size=20))
def test_a_text_inside_of_another_gets_no_blank_before_it(sentencepiece_gguf: Tokenizer, text: str) -> None:
    ids = sentencepiece_gguf.encode_inner(text)
    assert b"".join(sentencepiece_gguf.token_bytes[token_id] for token_id in ids) == text.encode()


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("smollm", "in 2024", ["in", " ", "2", "0", "2", "4"]),
        ("qwen2", "in 2024", ["in", " ", "2", "0", "2", "4"]),
        ("llama-bpe", "\n\n x", ["\n\n", " x"]),
        ("gpt-2", "I'll\n x", ["I", "'ll", "\n", " x"]),
    ],
)
def test_pre_tokenizers_split_as_named(pre: str, text: str, pieces: list[str], tmp_path: Path) -> None:
    """With merges for every pair in the text, only the pre-tokenizer keeps the pieces apart."""
    tokenizer = Tokenizer.load(write_byte_level_gguf(tmp_path / "model.gguf", pre=pre))
    split = tokenizer._backend.pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in split] == pieces


def test_unknown_kinds_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="pre-tokenizer 'tekken'"):
        Tokenizer.load(write_byte_level_gguf(tmp_path / "pre.gguf", pre="tekken"))
    with pytest.raises(ModelError, match="kind 'bert'"):
        Tokenizer.load(write_gguf(tmp_path / "bert.gguf", model="bert", tokens=["a"], types=[1]))


def test_metadata_is_read_whole(tmp_path: Path) -> None:
    file = write_gguf(
        tmp_path / "x.gguf", model="gpt2", tokens=["a", "é"], types=[1, 3], merges=["a é"], add_bos_token=False, eos_token_id=7
    )
    metadata = read_gguf_header(file).metadata
    assert metadata["general.architecture"] == "llama"
    assert metadata["tokenizer.ggml.tokens"] == ["a", "é"]
    assert metadata["tokenizer.ggml.token_type"] == [1, 3]
    assert metadata["tokenizer.ggml.add_bos_token"] is False
    assert metadata["tokenizer.ggml.eos_token_id"] == 7


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    file = write_byte_level_gguf(tmp_path / "x.gguf", pre="smollm")
    raw = file.read_bytes()
    for length in (0, 3, 10, 30, len(raw) // 2, len(raw) - 40):
        file.write_bytes(raw[:length])
        with pytest.raises(ModelError):
            read_gguf_header(file)
    file.write_bytes(b"PK" + raw)
    with pytest.raises(ModelError, match="not a GGUF file"):
        read_gguf_header(file)
    file.write_bytes(raw[:4] + b"\x01\0\0\0" + raw[8:])
    with pytest.raises(ModelError, match="version 1"):
        read_gguf_header(file)
    with pytest.raises(ModelError, match="can't be read"):
        read_gguf_header(tmp_path / "missing.gguf")


def test_known_ends_of_turns_end_an_answer_whatever_the_keys_say(tmp_path: Path) -> None:
    tokens = ["a", "b", "ab", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    file = write_gguf(tmp_path / "m.gguf", model="gpt2", tokens=tokens, types=[1, 1, 1, 3, 3, 3], merges=["a b"], eos_token_id=3)
    assert Tokenizer.load(file).eos_ids == {3, 5}


@pytest.mark.parametrize(("kind", "ends"), [(1, {4}), (3, {3, 4}), (4, {3, 4})])
def test_the_html_tag_of_struck_out_text_is_no_end_where_it_is_plain_text(tmp_path: Path, kind: int, ends: set[int]) -> None:
    """Qwen's vocabulary has `</s>` as plain text; for Llama 2 it is the end."""
    tokens = ["a", "b", "ab", "</s>", "<|im_end|>"]
    file = write_gguf(tmp_path / "m.gguf", model="gpt2", tokens=tokens, types=[1, 1, 1, kind, 3], merges=["a b"], eos_token_id=4)
    assert Tokenizer.load(file).eos_ids == ends


def test_a_byte_level_vocabulary_without_merges_is_refused(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", model="gpt2", tokens=["a"], types=[1])
    with pytest.raises(ModelError, match="without merges: use the model's Hugging Face directory"):
        Tokenizer.load(file)
