"""Parameters as users write them in Python."""

from typing import Literal

import msgspec
import pytest

from radixserve.errors import InvalidRequestError
from radixserve.sampling_params import MAX_GRAMMAR_BYTES, Grammar, SamplingParams


def test_a_stop_of_one_text_is_a_tuple_of_it() -> None:
    params = SamplingParams(stop="\n\n")
    params.validate(vocab_size=10)
    assert params.stop == ("\n\n",)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stop": ("a", "")}, "empty string"),
        ({"stop": "a" * 1025}, "1025 characters: at most 1024"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"n": 129}, "n is 129: must be between 1 and 128"),
    ],
)
def test_a_bad_value_names_field_value_and_limit(fields: dict, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        SamplingParams(**fields).validate(vocab_size=10)


@pytest.mark.parametrize("kind", ["json_schema", "regex", "ebnf", "choice", "structural_tag"])
@pytest.mark.parametrize("character", ["a", "é", "\ud83d"])
def test_the_size_of_a_grammar_is_bounded_in_bytes(kind: Literal["regex"], character: str) -> None:
    size = len(character.encode(errors="surrogatepass"))
    most = MAX_GRAMMAR_BYTES // size
    SamplingParams(grammar=Grammar(kind, character * most)).validate(vocab_size=10)
    params = SamplingParams(grammar=Grammar(kind, character * (most + 1)))
    with pytest.raises(InvalidRequestError, match=f"{kind} has {size * (most + 1)} bytes: at most {MAX_GRAMMAR_BYTES}") as caught:
        params.validate(vocab_size=10)
    assert caught.value.param == "grammar"
