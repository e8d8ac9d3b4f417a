"""Talk to a running server (`make serve`) with the openai client.

Usage: python openai_client.py [http://127.0.0.1:8000]
"""

import os
import sys

from openai import OpenAI

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("RADIXSERVE_API_KEY", "none"))
model = client.models.list().data[0].id

for question in ("Why is the sky blue?", "Why is the sea blue?"):
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        max_tokens=48,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    print(f"> {question}")
    for chunk in stream:
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
        if chunk.usage and chunk.usage.prompt_tokens_details:
            usage = chunk.usage
            print(f"\n[{usage.prompt_tokens_details.cached_tokens} of {usage.prompt_tokens} prompt tokens cached]\n")
