"""Errors of one field: an API calls the field by its own name, wherever the error was found."""

import pickle

import msgspec
import pytest

from radixserve.errors import BusyError, InvalidRequestError, ParamError, RadixServeError
from radixserve.ipc import RequestFailed
from radixserve.server.errors import named

ERRORS = [
    ParamError("max_tokens", "is -1: must be at least 0"),
    ParamError("max_tokens", "is 9, 12 in all", lead="the prompt has 3 tokens and ", code="context_length_exceeded"),
    InvalidRequestError("the regex can't be enforced: max_tokens is [", param="grammar", code="c"),
    BusyError("1 requests run"),
    RadixServeError("a bug"),
]


def facts(error: RadixServeError) -> tuple[object, ...]:
    return type(error), str(error), *(getattr(error, name, None) for name in ("param", "code", "problem", "lead"))


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_an_error_crosses_processes_as_it_is(error: RadixServeError) -> None:
    message = msgspec.msgpack.decode(msgspec.msgpack.encode(RequestFailed.of("1", error)), type=RequestFailed)
    assert facts(message.error()) == facts(error)
    if isinstance(error, ParamError):
        assert facts(pickle.loads(pickle.dumps(error))) == facts(error)


@pytest.mark.parametrize(
    ("error", "param", "message"),
    [
        (ERRORS[0], "limit", "limit is -1: must be at least 0"),
        (ERRORS[1], "limit", "the prompt has 3 tokens and limit is 9, 12 in all"),
        (ERRORS[2], "text.format", "text.format: the regex can't be enforced: max_tokens is ["),
        (ParamError("n", "is 0: max_tokens is there"), "n", "n is 0: max_tokens is there"),
    ],
    ids=str,
)
def test_an_error_calls_a_field_as_the_client_does(error: InvalidRequestError, param: str, message: str) -> None:
    shown = named(error, {"max_tokens": "limit", "grammar": "text.format"})
    assert isinstance(shown, InvalidRequestError)
    assert (shown.param, str(shown), shown.code) == (param, message, error.code)
