"""Errors in the form of Anthropic's API."""

import msgspec

from radixserve.server.errors import error_body, status_of


class MessageErrorDetail(msgspec.Struct, frozen=True):
    """What went wrong, in Anthropic's words."""

    type: str
    message: str


class MessageErrorBody(msgspec.Struct, frozen=True, tag="error"):
    """The JSON of every error reply of Anthropic's API, and of the event that ends a stream that failed."""

    error: MessageErrorDetail


def message_error(error: Exception) -> MessageErrorBody:
    """The body that stands for an exception in Anthropic's API."""
    status = status_of(error)
    kind = _MESSAGE_KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return MessageErrorBody(MessageErrorDetail(kind, error_body(error).error.message))


_MESSAGE_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
}
