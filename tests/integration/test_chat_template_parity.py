"""Chats are rendered and tokenized as transformers does it, for templates in the styles of the supported families."""

from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from radixserve.text.chat_messages import normalize_messages
from radixserve.text.tokenizer import Tokenizer
from tests.unit.text.vocabularies import CHATML, byte_level, write_directory

SMOLLM2 = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful assistant.<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

LLAMA3 = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%Y") %}
{%- endif %}
{#- The system message comes first, with the tools. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday: " + date_string + "\\n" }}
{%- if tools is not none %}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}{{- raise_exception("one call at a time") }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- else %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

QWEN25 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "system" and not (loop.first and tools)) or message.role == "user" %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' ~ tool_call.name ~ '", "arguments": ' ~ (tool_call.arguments | tojson) ~ '}' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or messages[loop.index0 - 1].role != "tool" %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != "tool" %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

MISTRAL = """{{ bos_token }}
{%- set ns = namespace(system='', turn=0) %}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}
        {%- set ns.system = message['content'] + '\\n\\n' %}
        {%- continue %}
    {%- endif %}
    {%- if message['role'] in ('user', 'assistant') and (message['role'] == 'user') != (ns.turn % 2 == 0) %}
        {{- raise_exception('user and assistant must alternate') }}
    {%- endif %}
    {%- set ns.turn = ns.turn + 1 %}
    {%- if message['role'] == 'user' %}
        {%- if loop.last and tools %}
            {{- '[AVAILABLE_TOOLS] ' + tools | tojson + '[/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {{- '[INST] ' + ns.system + message['content'] + ' [/INST]' }}
        {%- set ns.system = '' %}
    {%- elif message['role'] == 'assistant' %}
        {{- ' ' + message['content'] | trim + eos_token }}
    {%- endif %}
{%- endfor %}
"""

TEMPLATES = {"smollm2": SMOLLM2, "chatml": CHATML, "llama3": LLAMA3, "qwen2.5": QWEN25, "mistral": MISTRAL}

SYSTEM = {"role": "system", "content": " Be brief — naïve, 한국어. "}
USER = {"role": "user", "content": "  What is the weather in Zürich? 👩‍👩‍👧‍👦 {{ x }} <b>&amp;\n\n"}
ASSISTANT = {"role": "assistant", "content": "the cat sat\n"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "b": 1, "a": [None, 1.5]}}}
    ],
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Wetter für <Städte> & 'Orte'",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "b": {"type": "integer"}},
            "required": ["city"],
        },
    },
}

CHATS: dict[str, dict[str, Any]] = {
    "user": {"messages": [USER]},
    "system": {"messages": [SYSTEM, USER]},
    "turns": {"messages": [SYSTEM, USER, ASSISTANT, USER, ASSISTANT, USER]},
    "no prompt": {"messages": [USER, ASSISTANT], "add_generation_prompt": False},
    "continued": {"messages": [USER, ASSISTANT], "add_generation_prompt": False, "continue_final_message": True},
    "tools": {"messages": [SYSTEM, USER], "tools": [TOOL, TOOL]},
    "empty content": {"messages": [{"role": "user", "content": ""}]},
}
CALLS: dict[str, dict[str, Any]] = {
    "call": {"messages": [SYSTEM, USER, CALL, {"role": "tool", "content": "21 °C"}], "tools": [TOOL]},
    "two answers": {
        "messages": [USER, CALL, {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}, USER],
        "tools": [TOOL],
    },
}
KNOW_TOOLS = ("llama3", "qwen2.5", "mistral")
"""The others are taught tools by a system text of ours, which transformers doesn't write."""
CASES = [(name, chat) for name in TEMPLATES for chat in CHATS if chat != "tools" or name in KNOW_TOOLS] + [
    (name, chat) for name in ("llama3", "qwen2.5") for chat in CALLS
]


@pytest.fixture(scope="module")
def tokenizers_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Tokenizer, PreTrainedTokenizerFast]]:
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    pairs = {}
    for name, template in TEMPLATES.items():
        directory: Path = write_directory(tmp_path_factory.mktemp("model"), byte_level(), chat_template=template, **tokens)
        oracle = PreTrainedTokenizerFast(tokenizer_file=str(directory / "tokenizer.json"), chat_template=template, **tokens)
        pairs[name] = (Tokenizer.load(directory), oracle)
    return pairs


@pytest.mark.parametrize(("name", "case"), CASES)
def test_text_and_tokens_equal_transformers(
    name: str, case: str, tokenizers_of: dict[str, tuple[Tokenizer, PreTrainedTokenizerFast]]
) -> None:
    ours, oracle = tokenizers_of[name]
    chat = {"add_generation_prompt": True} | (CHATS | CALLS)[case]
    text = oracle.apply_chat_template(**{"conversation": chat["messages"], **without(chat, "messages")}, tokenize=False)
    assert ours.chat_template is not None
    assert ours.chat_template.render(normalize_messages(chat["messages"]), **without(chat, "messages")) == text
    ids = oracle.apply_chat_template(
        **{"conversation": chat["messages"], **without(chat, "messages")}, tokenize=True, return_dict=False
    )
    assert ours.encode_chat(**chat).tolist() == ids
    assert len(ids) > 4


def test_a_template_that_rejects_a_chat_rejects_it_in_both(
    tokenizers_of: dict[str, tuple[Tokenizer, PreTrainedTokenizerFast]],
) -> None:
    ours, oracle = tokenizers_of["mistral"]
    with pytest.raises(Exception, match="must alternate"):
        oracle.apply_chat_template([USER, USER], tokenize=False)
    with pytest.raises(Exception, match="must alternate"):
        ours.encode_chat([USER, USER])


def without(chat: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in chat.items() if name != key}
