"""A grammar whose compilation does not come to an end: its client may leave, and nobody else notices."""

import json

import httpx
import pytest

from tests.server.running import RunningServer

ENDLESS = {"type": "integer", "multipleOf": 99999999, "minimum": -(10**15), "maximum": 10**15}


def test_who_waits_for_an_endless_grammar_may_leave_and_holds_up_nobody(server: RunningServer) -> None:
    body = {"prompt": "Once", "max_tokens": 4, "guided_json": json.dumps(ENDLESS)}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(server.url + "/v1/completions", json=body, timeout=1.0)
    reply = server.post("/v1/completions", prompt="Once", max_tokens=4, regex="[ab]{4}")
    assert reply.status_code == 200
    assert reply.json()["choices"][0]["finish_reason"] == "stop"
    server.wait_idle()
