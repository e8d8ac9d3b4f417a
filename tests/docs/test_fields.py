"""The tables of fields in docs/serving.md say what the code does with each field of each endpoint."""

from pathlib import Path

import msgspec
import pytest

from radixserve.server.messages.body import NOT_HONOURED, CountBody, MessagesBody
from radixserve.server.not_honoured import NotHonoured, OtherConstraints
from radixserve.server.protocol import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from radixserve.server.responses import body as responses
from radixserve.server.responses.body import ResponsesBody

PAGE = (Path(__file__).parents[2] / "docs/serving.md").read_text()
BODIES: dict[str, type[msgspec.Struct]] = {
    "/v1/completions": CompletionBody,
    "/v1/chat/completions": ChatBody,
    "/v1/responses": ResponsesBody,
    "/v1/messages": MessagesBody,
    "/v1/messages/count_tokens": CountBody,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
}
REFUSED_ALONE = {
    "/v1/completions": {"tools"},
    "/v1/responses": set(responses.NOT_HONOURED),
    "/v1/messages": set(NOT_HONOURED),
    "/v1/messages/count_tokens": set(NOT_HONOURED),
}
"""Fields that an endpoint refuses and others don't."""
READ_AND_IGNORED = {"user"}


def said(endpoint: str) -> dict[str, str]:
    """What the tables say of an endpoint's fields."""
    found: dict[str, str] = {}
    column = 0
    for line in PAGE.splitlines():
        cells = [cell.strip().strip("`") for cell in line.split("|")[1:-1]]
        if line.startswith("| field |"):
            column = cells.index(endpoint) if endpoint in cells else 0
        elif column and line.startswith("| `") and cells[column]:
            assert cells[0] not in found, f"{cells[0]} is in two rows"
            found[cells[0]] = cells[column]
        elif not line.startswith("|"):
            column = 0
    return found


@pytest.mark.parametrize("endpoint", BODIES)
def test_every_field_is_in_the_table_and_true(endpoint: str) -> None:
    body, table = BODIES[endpoint], said(endpoint)
    refused = REFUSED_ALONE.get(endpoint, set()).union(
        *(kind.__struct_fields__ for kind in (NotHonoured, OtherConstraints) if issubclass(body, kind))
    )
    fields = set(body.__struct_fields__) - READ_AND_IGNORED
    assert {name for name, how in table.items() if how == "yes"} == fields - refused
    assert {name for name, how in table.items() if how == "refused"} == refused
    assert not {name for name, how in table.items() if how == "tolerated"} & fields
    assert set(table.values()) <= {"yes", "refused", "tolerated"}
