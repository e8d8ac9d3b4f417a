"""Talk to a running server (`make serve`) with Anthropic's client: a tool, and a cache that needs no cache_control.

Usage: python anthropic_client.py [http://127.0.0.1:8000]
"""

import os
import sys

from anthropic import Anthropic

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
client = Anthropic(base_url=url, api_key=os.environ.get("RADIXSERVE_API_KEY", "none"))
model = client.models.list().data[0].id
schema = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
tools = [{"name": "get_weather", "description": "Weather now", "input_schema": schema}]
messages = [{"role": "user", "content": "What is the weather in Rome?"}]

for choice in ("any", "none"):
    with client.messages.stream(
        model=model, max_tokens=48, messages=messages, tools=tools, tool_choice={"type": choice}, extra_body={"temperature": 0}
    ) as stream:
        for text in stream.text_stream:
            print(text, end="", flush=True)
        reply = stream.get_final_message()
    cached = reply.usage.cache_read_input_tokens
    print(f"\n[{cached} of {cached + reply.usage.input_tokens} prompt tokens cached]")
    messages.append({"role": "assistant", "content": reply.content})
    for call in reply.content:
        if call.type == "tool_use":
            print(f"called {call.name}({call.input})")
            result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny, 24 degrees"}
            messages.append({"role": "user", "content": [result]})
