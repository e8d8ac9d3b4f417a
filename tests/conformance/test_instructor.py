"""instructor, in the modes that servers of the OpenAI API are used with."""

from collections.abc import Iterator

import instructor
import openai
import pytest
from instructor.core.exceptions import IncompleteOutputException

from tests.conformance.weather import QUESTION, Report
from tests.server.running import RunningServer

MODEL = "smollm2-135m"
MESSAGES = [{"role": "user", "content": QUESTION}]
MODES = [instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS]


@pytest.fixture(scope="module")
def plain(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("mode", MODES)
def test_a_model_comes_back_at_the_first_try(plain: openai.OpenAI, mode: instructor.Mode) -> None:
    client = instructor.from_openai(plain, mode=mode)
    report, reply = client.chat.completions.create_with_completion(
        model=MODEL, messages=MESSAGES, response_model=Report, max_retries=1, max_tokens=64, temperature=0
    )
    assert isinstance(report, Report)
    assert reply.usage.prompt_tokens_details.cached_tokens >= 0


@pytest.mark.parametrize("mode", MODES)
def test_partial_models_grow_to_the_whole(plain: openai.OpenAI, mode: instructor.Mode) -> None:
    client = instructor.from_openai(plain, mode=mode)
    parts = list(
        client.chat.completions.create_partial(
            model=MODEL, messages=MESSAGES, response_model=Report, max_retries=1, max_tokens=64, temperature=0
        )
    )
    assert Report.model_validate(parts[-1].model_dump())


@pytest.mark.parametrize("mode", [instructor.Mode.JSON, *MODES])
def test_an_answer_that_was_cut_is_told_apart(plain: openai.OpenAI, mode: instructor.Mode) -> None:
    client = instructor.from_openai(plain, mode=mode)
    with pytest.raises(IncompleteOutputException):
        client.chat.completions.create(model=MODEL, messages=MESSAGES, response_model=Report, max_retries=1, max_tokens=4)


def test_responses_mode(plain: openai.OpenAI) -> None:
    client = instructor.from_openai(plain, mode=instructor.Mode.RESPONSES_TOOLS)
    report = client.responses.create(model=MODEL, input=QUESTION, response_model=Report, max_retries=1, max_output_tokens=64)
    assert isinstance(report, Report)
