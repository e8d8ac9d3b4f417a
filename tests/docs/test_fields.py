"""The tables of fields in docs/api say what the code does with each field of each endpoint."""

import re
from pathlib import Path

import msgspec
import pytest

from radixserve.server.admin.bodies import DetokenizeBody, TokenizeBody
from radixserve.server.anthropic.body import CountBody, MessagesBody
from radixserve.server.openai.bodies import ChatBody, CompletionBody
from radixserve.server.responses.body import ResponsesBody
from radixserve.server.unsupported_fields import RefusesUnsupported, not_honoured

DOCS = Path(__file__).parents[2] / "docs"
TABLES = "\n".join(page.read_text() for page in sorted((DOCS / "api").glob("*.md")))
BODIES: dict[str, type[msgspec.Struct]] = {
    "/v1/completions": CompletionBody,
    "/v1/chat/completions": ChatBody,
    "/v1/responses": ResponsesBody,
    "/v1/messages": MessagesBody,
    "/v1/messages/count_tokens": CountBody,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
}
READ_AND_IGNORED = {"user"}


def said(endpoint: str) -> dict[str, str]:
    """What the tables say of an endpoint's fields."""
    found: dict[str, str] = {}
    column = 0
    for line in TABLES.splitlines():
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
    refused = set(not_honoured(body)) if issubclass(body, RefusesUnsupported) else set()
    fields = set(body.__struct_fields__) - READ_AND_IGNORED
    assert {name for name, how in table.items() if how == "yes"} == fields - refused
    assert not {name for name, how in table.items() if how == "tolerated"} & fields
    assert set(table.values()) <= {"yes", "tolerated"}


def test_every_field_that_may_be_refused_is_told() -> None:
    section = (DOCS / "serving.md").read_text().split("## Refused fields")[1].split("##")[0]
    told = [name for line in section.splitlines() if line.startswith("`") for name in re.findall(r"`(\w+)`", line)]
    assert told == list(RefusesUnsupported.__struct_fields__)
