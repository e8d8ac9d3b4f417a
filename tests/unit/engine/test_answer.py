"""Where an answer ends and what of it is shown."""

from typing import Any

from radixserve.engine.answer import Answer, End
from radixserve.req import Req
from radixserve.sampling_params import SamplingParams
from radixserve.text.tokenizer import Tokenizer
from radixserve.tokens import token_bytes

EOS = 900


def play(tokenizer: Tokenizer | None, token_ids: list[int], **params: Any) -> tuple[list[str], End | None]:
    """Pushes tokens until the end; returns the pieces of text and the end."""
    prompt = [1, 2]
    own = SamplingParams(**{"max_tokens": 100, **params})
    assert own.max_tokens is not None
    stop_ids = frozenset({EOS, *own.stop_token_ids})
    req = Req("r", 0, token_bytes(prompt), len(prompt), own, own.max_tokens, stop_ids)
    answer, pieces = Answer(req, tokenizer), []
    for token_id in token_ids:
        text, end = answer.push(token_id)
        pieces.append(text)
        if end is not None:
            return pieces, end
    return pieces, None


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return [int(i) for i in tokenizer.encode(text, add_special_tokens=False)]


def test_the_models_end_token_is_not_shown_and_has_no_stop_reason() -> None:
    assert play(None, [5, EOS, 6]) == (["", ""], End("stop"))


def test_a_stop_token_of_the_request_is_named() -> None:
    assert play(None, [5, 7, 6], stop_token_ids=(7,)) == (["", ""], End("stop", 7))


def test_max_tokens_ends_it() -> None:
    assert play(None, [5, 6, 7], max_tokens=2)[1] == End("length")


def test_a_stop_string_over_several_tokens_is_cut_and_named(tokenizer: Tokenizer) -> None:
    pieces, end = play(tokenizer, ids(tokenizer, "abcDEFGHIJxyz"), stop=("DEFGHIJ",))
    assert "".join(pieces) == "abc"
    assert end == End("stop", "DEFGHIJ")


def test_a_false_start_of_a_stop_string_is_shown_at_the_end(tokenizer: Tokenizer) -> None:
    pieces, end = play(tokenizer, [*ids(tokenizer, "abcDEFG"), EOS], stop=("DEFGHIJ",))
    assert "".join(pieces) == "abcDEFG"
    assert end == End("stop")


def test_text_before_min_tokens_is_not_searched(tokenizer: Tokenizer) -> None:
    pieces, end = play(tokenizer, ids(tokenizer, "aXbXc"), stop=("X",), min_tokens=3)
    assert "".join(pieces) == "aXb"
    assert end == End("stop", "X")


def test_a_character_that_max_tokens_cuts_is_one_mark(tokenizer: Tokenizer) -> None:
    tokens = ids(tokenizer, "a\N{GRINNING FACE}")
    pieces, end = play(tokenizer, tokens, max_tokens=len(tokens) - 1)
    assert "".join(pieces) == "a\N{REPLACEMENT CHARACTER}"
    assert end == End("length")
    assert "".join(play(tokenizer, tokens, max_tokens=len(tokens))[0]) == "a\N{GRINNING FACE}"
