"""The shape of streams, read strictly."""

import httpx
import pytest

from tests.server.running import RunningServer, frames

FIELDS = {"prompt": "Once", "max_tokens": 30, "temperature": 0, "ignore_eos": True}


@pytest.mark.parametrize("route", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("include_usage", [True, False])
def test_one_finish_a_choice_then_usage_then_done(server: RunningServer, route: str, include_usage: bool) -> None:
    prompt = {"prompt": "Once"} if route == "/v1/completions" else {"messages": [{"role": "user", "content": "Once"}]}
    options = {"stream": True, "stream_options": {"include_usage": include_usage}}
    reply = server.post(route, **prompt, n=3, max_tokens=7, seed=1, ignore_eos=True, **options)
    assert reply.headers["content-type"].startswith("text/event-stream")
    *chunks, done = frames(reply.text)
    assert done == "[DONE]"
    if include_usage:
        *chunks, last = chunks
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == 21
        assert all(chunk["usage"] is None for chunk in chunks)
    else:
        assert all("usage" not in chunk for chunk in chunks)
    finished = [choice["index"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"] is not None]
    assert sorted(finished) == [0, 1, 2]
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_stop_strings_cut_streams_and_answers_alike(server: RunningServer) -> None:
    full = server.post("/v1/completions", **FIELDS).json()["choices"][0]["text"]
    stop = full[5:8]
    expected = full[: full.index(stop)]
    whole = server.post("/v1/completions", **FIELDS, stop=[stop, full[7:12]]).json()["choices"][0]
    assert (whole["text"], whole["finish_reason"], whole["stop_reason"]) == (expected, "stop", stop)
    streamed = frames(server.post("/v1/completions", **FIELDS, stop=[stop], stream=True).text)[:-1]
    assert "".join(chunk["choices"][0]["text"] for chunk in streamed) == expected


def test_a_held_tail_is_not_lost(server: RunningServer) -> None:
    full = server.post("/v1/completions", **FIELDS).json()["choices"][0]["text"]
    streamed = frames(server.post("/v1/completions", **FIELDS, stop=[full[-4:] + "#"], stream=True).text)[:-1]
    assert "".join(chunk["choices"][0]["text"] for chunk in streamed) == full


def test_tokens_there_and_back(server: RunningServer) -> None:
    tokens = server.post("/tokenize", prompt="Zwölf Bäume").json()
    assert tokens["count"] == len("Zwölf Bäume".encode()) == len(tokens["tokens"])
    assert server.post("/detokenize", tokens=tokens["tokens"]).json() == {"prompt": "Zwölf Bäume"}
    chat = server.post("/tokenize", messages=[{"role": "user", "content": "Hi"}]).json()["tokens"]
    assert "Hi" in server.post("/detokenize", tokens=chat).json()["prompt"]


def test_tokens_come_as_the_vocabulary_has_them_where_they_are_asked_for(server: RunningServer) -> None:
    assert "token_strs" not in server.post("/tokenize", prompt="a b").json()
    assert server.post("/tokenize", prompt="a b", return_token_strs=True).json()["token_strs"] == ["a", "Ġ", "b"]


def test_tokens_of_a_conversation_can_leave_its_last_message_open(server: RunningServer) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well, "}]
    open_end = {"add_generation_prompt": False, "continue_final_message": True}
    tokens = server.post("/tokenize", messages=messages, **open_end).json()["tokens"]
    asked = server.post("/v1/chat/completions", model="tiny", messages=messages, max_tokens=1, return_token_ids=True, **open_end)
    assert tokens == asked.json()["prompt_token_ids"]


def test_metrics_are_served(server: RunningServer) -> None:
    server.post("/v1/completions", **FIELDS)
    text = httpx.get(server.url + "/metrics").text
    assert "radixserve_engine_up 1.0" in text
    assert "radixserve_time_to_first_token_seconds_count" in text
