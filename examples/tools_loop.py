"""Let the model call one of our functions, and answer with its result. Needs a running server (`make serve`).

The first call is required, so its arguments match the function's schema. Usage: python tools_loop.py [http://127.0.0.1:8000]
"""

import json
import os
import sys

from openai import OpenAI

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("RADIXSERVE_API_KEY", "none"))
model = client.models.list().data[0].id


def get_weather(city: str) -> str:
    return {"Rome": "sunny, 24 degrees", "Oslo": "snow, 3 degrees below zero"}[city]


parameters = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
tools = [{"type": "function", "function": {"name": "get_weather", "description": "Weather now", "parameters": parameters}}]
messages = [{"role": "user", "content": "What is the weather in Rome?"}]
for choice in ("required", "none"):
    reply = client.chat.completions.create(
        model=model, messages=messages, tools=tools, tool_choice=choice, parallel_tool_calls=False, max_tokens=64, temperature=0
    )
    message, usage = reply.choices[0].message, reply.usage
    print(f"[{usage.prompt_tokens_details.cached_tokens} of {usage.prompt_tokens} prompt tokens cached] {message.content or ''}")
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls or []:
        result = get_weather(**json.loads(call.function.arguments))
        print(f"called {call.function.name}({call.function.arguments}): {result}")
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
