"""Parameters as users write them in Python."""

import msgspec
import pytest

from radixserve.errors import InvalidRequestError
from radixserve.sampling_params import SamplingParams


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
