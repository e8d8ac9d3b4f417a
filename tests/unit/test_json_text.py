"""The strict reader: what only Python calls JSON is none, and whole numbers are exact."""

import pytest

from radixserve.json_text import read_json


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", '{"a": -Infinity}', "1e400", "-1e999", '{"a": [1, 1e309]}', "{", "[" * 100_000]
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(text)


@pytest.mark.parametrize("number", [9007199254740993, 2**64 + 1, -(2**70), 10**100])
def test_whole_numbers_are_exact(number: int) -> None:
    assert read_json(f'{{"a": {number}}}') == {"a": number}


def test_of_a_key_that_comes_twice_the_last_value_counts() -> None:
    assert read_json(r'{"b": {"a": 1, "\u0061": 2}}') == {"b": {"a": 2}}
