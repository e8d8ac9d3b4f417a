"""Text in pieces is the text as a whole: detokenizer and stop strings under random cuts."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from radixserve.text.detokenizer import Detokenizer
from radixserve.text.stop_strings import StopStrings
from radixserve.text.token_bytes import TokenBytes
from tests.unit.text.vocabularies import byte_level, sentencepiece

BACKEND = byte_level()
BYTE_LEVEL = TokenBytes(BACKEND)
SPECIAL = frozenset(index for index, token in BACKEND.get_added_tokens_decoder().items() if token.special)
SPM = TokenBytes(sentencepiece())


def chunks(items: list[int], cuts: list[int]) -> list[list[int]]:
    edges = sorted({0, len(items), *(cut % (len(items) + 1) for cut in cuts)})
    return [items[start:end] for start, end in itertools.pairwise(edges)]


ids = st.lists(st.integers(0, BACKEND.get_vocab_size() + 3), max_size=40)
cut_lists = st.lists(st.integers(0, 1000), max_size=20)


@given(ids, cut_lists)
def test_pushes_join_to_what_tokenizers_decodes(output: list[int], cuts: list[int]) -> None:
    detokenizer = Detokenizer(BYTE_LEVEL, SPECIAL, [])
    pieces = [detokenizer.push(chunk) for chunk in chunks(output, cuts)]
    assert "".join(pieces) + detokenizer.finish() == BACKEND.decode(output, skip_special_tokens=True)


@given(st.text(max_size=30), cut_lists)
def test_real_text_never_shows_a_mark(text: str, cuts: list[int]) -> None:
    detokenizer = Detokenizer(BYTE_LEVEL, SPECIAL, [])
    shown = ""
    for chunk in chunks(BACKEND.encode(text).ids, cuts):
        shown += detokenizer.push(chunk)
        assert BACKEND.decode(BACKEND.encode(text).ids).startswith(shown)
    assert detokenizer.finish() == ""


@given(st.lists(st.integers(3, 258), min_size=1, max_size=30), st.lists(st.integers(0, 280), max_size=30), cut_lists)
def test_an_output_continues_its_prompt(prompt: list[int], output: list[int], cuts: list[int]) -> None:
    """Whatever bytes the prompt ends in, its certain text and the output's make the text of both."""
    special = frozenset({0, 1, 2})
    whole = b"".join(SPM[token_id] for token_id in prompt + output if token_id not in special).removeprefix(b" ")
    context = Detokenizer(SPM, special, [])
    detokenizer = Detokenizer(SPM, special, prompt)
    shown = "".join(detokenizer.push(chunk) for chunk in chunks(output, cuts)) + detokenizer.finish()
    assert context.push(prompt) + shown == whole.decode(errors="replace")


def naive_stop(stop: list[str], text: str) -> tuple[str, str | None]:
    """One character at a time: the first stop string to be complete, the longest of several."""
    for end in range(1, len(text) + 1):
        complete = [one for one in stop if text[:end].endswith(one)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(
    st.lists(st.text(alphabet="ab🐱", min_size=1, max_size=5), max_size=4),
    st.lists(st.text(alphabet="ab🐱", max_size=6), max_size=12),
)
def test_stop_strings_do_not_depend_on_the_cuts(stop: list[str], pieces: list[str]) -> None:
    watch = StopStrings(tuple(stop))
    text, expected = naive_stop(stop, "".join(pieces))
    shown, seen = "", ""
    for piece in pieces:
        seen += piece
        safe, matched = watch.push(piece)
        shown += safe
        assert text.startswith(shown)
        if matched is not None:
            assert (shown, matched) == (text, expected)
            return
        held = seen[len(shown) :]
        assert not held or any(one.startswith(held) for one in stop)
    assert expected is None
    assert shown + watch.finish() == text
