"""A model's sampling defaults count on every route, unless a request says otherwise."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from radixserve.sampling_defaults import SamplingDefaults
from radixserve.sampling_params import SamplingParams
from radixserve.server.service import Service
from tests.server.fake_engine import FakeClient, http, make_service
from tests.server.running import running
from tests.tiny_models import EOS_ID, make_tiny_model

STATED = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.05}
NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
CHAT = {"messages": [{"role": "user", "content": "a"}]}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "a"},
    "/v1/chat/completions": CHAT,
    "/v1/responses": {"input": "a"},
    "/v1/messages": CHAT | {"max_tokens": 5},
    "/generate": {"text": "a"},
}


@pytest.fixture
def service(tiny_model_dir: Path) -> Service:
    made = make_service(tiny_model_dir, FakeClient())
    made.info = msgspec.structs.replace(made.info, sampling_defaults=SamplingDefaults(**STATED))  # type: ignore[arg-type]
    return made


def ask(service: Service, route: str, **fields: Any) -> tuple[SamplingParams, Any]:
    """What the engine was asked, and the reply."""
    body = ROUTES[route] | ({"sampling_params": fields} if route == "/generate" else fields)

    async def post() -> Any:
        async with http(service) as client:
            reply = await client.post(route, json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    reply = asyncio.run(post())
    return service.client.requests[-1].params, reply  # type: ignore[attr-defined]


def sampled(params: SamplingParams) -> dict[str, float]:
    return {name: getattr(params, name) for name in STATED}


@pytest.mark.parametrize("route", ROUTES)
def test_sampling_defaults_of_the_model_count_where_a_request_does_not_say(service: Service, route: str) -> None:
    assert sampled(ask(service, route)[0]) == STATED
    assert sampled(ask(service, route, **dict.fromkeys(STATED))[0]) == STATED


@pytest.mark.parametrize("name", NEUTRAL)
@pytest.mark.parametrize("route", ROUTES)
def test_a_field_of_a_request_counts_even_where_it_is_neutral(service: Service, route: str, name: str) -> None:
    assert sampled(ask(service, route, **{name: NEUTRAL[name]})[0]) == STATED | {name: NEUTRAL[name]}


@pytest.mark.parametrize("route", ROUTES)
def test_minus_one_turns_the_models_top_k_off(service: Service, route: str) -> None:
    assert ask(service, route, top_k=-1)[0].top_k == 0


def test_a_response_tells_what_it_was_sampled_with(service: Service) -> None:
    reply = ask(service, "/v1/responses", top_p=0.5)[1]
    assert (reply["temperature"], reply["top_p"]) == (0.6, 0.5)


def test_a_server_tells_the_sampling_defaults_of_its_model(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model")
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": EOS_ID} | STATED | {"do_sample": False}))
    with running(tmp_path, model) as server:
        assert server.get("/server_info")["sampling_defaults"] == STATED | {"temperature": 0.0}
        answers = [server.post("/v1/completions", prompt="one two", max_tokens=4).json()["choices"] for _ in range(2)]
        assert answers[0] == answers[1]
