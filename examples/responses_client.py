"""Hold a conversation that the server stores (`make serve`), with the openai client's Responses API.

Usage: python responses_client.py [http://127.0.0.1:8000]
"""

import os
import sys

from openai import OpenAI

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("RADIXSERVE_API_KEY", "none"))
model = client.models.list().data[0].id

previous = None
for question in ("Name three colors.", "Which one is the color of grass?", "And which one of the sea?"):
    print(f"> {question}")
    with client.responses.stream(
        model=model, input=question, previous_response_id=previous, max_output_tokens=32, temperature=0
    ) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                print(event.delta, end="", flush=True)
            elif event.type in ("response.completed", "response.incomplete"):
                previous, usage = event.response.id, event.response.usage
    print(f"\n[{usage.input_tokens_details.cached_tokens} of {usage.input_tokens} prompt tokens cached]\n")
