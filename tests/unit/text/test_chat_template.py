"""Rendering of chat templates, and what happens when they fail."""

import pytest

from radixserve.errors import InvalidRequestError, ModelError
from radixserve.text.chat_template import ChatTemplate

USER = [{"role": "user", "content": "hi"}]


def test_special_tokens_arguments_and_loop_controls() -> None:
    source = (
        "{{ bos_token }}{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content }}{% endfor %}{{ mood }}"
    )
    template = ChatTemplate(source, {"bos_token": "<s>"})
    assert template.render(USER * 3, template_kwargs={"mood": "!"}) == "<s>hi!"


def test_tojson_keeps_order_and_characters() -> None:
    template = ChatTemplate("{{ tools | tojson }}|{{ tools[0] | tojson(indent=1) }}", {})
    assert template.render(USER, tools=[{"b": "<é>", "a": 1}]) == '[{"b": "<é>", "a": 1}]|{\n "b": "<é>",\n "a": 1\n}'


def test_generation_block_is_its_body() -> None:
    assert ChatTemplate("a{% generation %}b{{ 1 }}{% endgeneration %}c", {}).render(USER) == "ab1c"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[5].content.x }}", "no element 5"),
        ("{{ 1 / 0 }}", "division"),
        ("{{ messages.append(1) }}", "'append' of 'list'"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_whatever_fails_inside_is_a_bad_request(source: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason) as caught:
        ChatTemplate(source, {}).render(USER)
    assert caught.value.param == "messages"
    assert len(caught.value.message) < 400


def test_an_invalid_template_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="not valid"):
        ChatTemplate("{% for %}", {})


@pytest.mark.parametrize(
    ("source", "ending"), [("[{{ messages[-1].content }}]", "[so  "), ("[{{ messages[-1].content | trim }}]", "[so")]
)
def test_a_final_message_is_left_open(source: str, ending: str) -> None:
    final = [*USER, {"role": "assistant", "content": "so  "}]
    assert ChatTemplate(source, {}).render(final, continue_final_message=True) == ending
    assert final[-1]["content"] == "so  "


def test_a_final_message_that_is_not_shown_cannot_be_continued() -> None:
    with pytest.raises(InvalidRequestError, match="leaves the final message out"):
        ChatTemplate("x", {}).render(USER, continue_final_message=True)
