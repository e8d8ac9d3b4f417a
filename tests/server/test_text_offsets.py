"""text_offset: where each token begins, in characters of the text, whatever the tokens are."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from radixserve.ipc import TokenLogprob
from radixserve.server.openai.token_text import TextOffsets, completion_logprobs, echo_logprobs
from radixserve.text.spec import TokenizerSpec
from radixserve.text.tokenizer import Tokenizer
from tests.unit.text.vocabularies import byte_level

TOKENIZER = Tokenizer(TokenizerSpec(backend=byte_level(), bos_id=None, eos_ids=frozenset(), special_tokens={}, templates={}))
TEXTS = st.text(st.sampled_from("ab 東京한é😀👩‍\n"), min_size=1, max_size=12)


def scored(ids: list[int]) -> list[TokenLogprob]:
    return [TokenLogprob(token_id, -1.0) for token_id in ids]


def check(text: str, tokens: list[str], offsets: list[int]) -> None:
    """Whole tokens are in the text where they are said to be; the others begin inside of it, in order."""
    assert offsets == sorted(offsets)
    assert offsets[0] == 0
    for token, offset in zip(tokens, offsets, strict=True):
        if not token.startswith("bytes:"):
            assert text[offset : offset + len(token)] == token
        else:
            assert 0 <= offset < len(text)


@given(text=TEXTS)
def test_of_a_prompt_that_is_repeated(text: str) -> None:
    ids = TOKENIZER.encode(text).tolist()
    shown = echo_logprobs(TOKENIZER, ids[0], scored(ids[1:]), 0, text)
    check(text, shown.tokens, shown.text_offset)


@given(text=TEXTS, cuts=st.lists(st.integers(0, 40), max_size=5))
def test_of_an_answer_at_once_and_in_pieces(text: str, cuts: list[int]) -> None:
    ids = TOKENIZER.encode(text).tolist()
    whole = completion_logprobs(TOKENIZER, scored(ids), TextOffsets(TOKENIZER.detokenizer([]), 0))
    check(text, whole.tokens, whole.text_offset)
    offsets, pieces = TextOffsets(TOKENIZER.detokenizer([]), 0), []
    bounds = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    for begin, end in itertools.pairwise(bounds):
        pieces += completion_logprobs(TOKENIZER, scored(ids[begin:end]), offsets).text_offset
    assert pieces == whole.text_offset


def test_characters_of_several_tokens() -> None:
    """Byte by byte: both tokens of a character begin where it does."""
    ids = [TOKENIZER.encode(char).tolist() for char in ("東", "京")]
    shown = echo_logprobs(TOKENIZER, ids[0][0], scored([*ids[0][1:], *ids[1]]), 0, "東京")
    assert shown.text_offset == [0] * len(ids[0]) + [1] * len(ids[1])
