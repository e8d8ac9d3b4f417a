"""Tools in the prompts of models whose chat template knows none."""

from typing import Any

from radixserve.text.chat_messages import normalize_messages
from radixserve.text.tools.teaching import spell_out_calls, teach_tools

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = {"type": "function", "id": "1", "function": {"name": "f", "arguments": '{"a": "é"}'}}


def spelled(*messages: dict[str, Any]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in spell_out_calls(normalize_messages(list(messages)))]


def test_calls_and_results_become_text() -> None:
    assistant = {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]}
    results = [
        {"role": "tool", "tool_call_id": "1", "content": "21"},
        {"role": "tool", "content": [{"type": "text", "text": "22"}]},
    ]
    call = '<tool_call>\n{"name": "f", "arguments": {"a": "é"}}\n</tool_call>'
    assert spelled({"role": "user", "content": "Hi"}, assistant, *results, {"role": "user", "content": "So?"}) == [
        ("user", "Hi"),
        ("assistant", f"{call}\n{call}"),
        ("user", "<tool_response>\n21\n</tool_response>\n<tool_response>\n22\n</tool_response>"),
        ("user", "So?"),
    ]
    assert spelled(assistant | {"content": "Wait."})[0][1].startswith("Wait.\n<tool_call>")


def test_tools_are_told_in_the_system_message() -> None:
    hi = [{"role": "user", "content": "Hi"}]
    (system, user) = teach_tools(hi, [TOOL])
    assert system["role"] == "system"
    assert '"name": "f"' in system["content"]
    assert "<tool_call>" in system["content"]
    assert user == hi[0]
    (system, _) = teach_tools([{"role": "system", "content": "Be brief."}, *hi], [TOOL])
    assert system["content"].startswith("Be brief.\n\nYou can call functions.")
    assert teach_tools(hi, []) == hi
