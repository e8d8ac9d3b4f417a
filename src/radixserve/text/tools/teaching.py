"""Tools for models whose chat template knows none: told in a system text, in the form of Hermes and Qwen.

Calls and results of earlier turns are spelled out in the messages, so that nothing a client sends is left out of the prompt.
"""

import json
from typing import Any

from radixserve.text.surrogates import escape_surrogates

SYSTEM = """You can call functions. Each line between <tools> and </tools> describes one in JSON:
<tools>
{tools}
</tools>
To call a function, write nothing but its name and arguments, as one JSON object between these marks:
<tool_call>
{{"name": "...", "arguments": {{...}}}}
</tool_call>
What it returns will be shown to you between <tool_response> and </tool_response>."""
"""Goes after the conversation's own system message, or stands for it."""


def teach_tools(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns normalized messages with a system text that says what `tools` (OpenAI's form) there are and how they are called."""
    if not tools:
        return messages
    lines = "\n".join(escape_surrogates(json.dumps(tool, ensure_ascii=False)) for tool in tools)
    text = SYSTEM.format(tools=lines)
    if messages[0]["role"] == "system":
        own = messages[0]["content"]
        return [messages[0] | {"content": f"{own}\n\n{text}" if own else text}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def spell_out_calls(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns normalized messages in which calls and results are text.

    Results become messages of the user, those in a row one message, since many templates want user and assistant to alternate.
    """
    spelled: list[dict[str, Any]] = []
    after_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        if is_result:
            content = f"<tool_response>\n{message['content']}\n</tool_response>"
            if after_result:
                spelled[-1] = {"role": "user", "content": f"{spelled[-1]['content']}\n{content}"}
            else:
                spelled.append({"role": "user", "content": content})
        else:
            spelled.append(_with_calls(message) if message.get("tool_calls") else message)
        after_result = is_result
    return spelled


def _with_calls(message: dict[str, Any]) -> dict[str, Any]:
    written = (escape_surrogates(json.dumps(_call(call), ensure_ascii=False)) for call in message["tool_calls"])
    calls = [f"<tool_call>\n{text}\n</tool_call>" for text in written]
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return rest | {"content": "\n".join(filter(None, [message["content"], *calls]))}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function", {})
    return {"name": function.get("name"), "arguments": function.get("arguments", {})}
