"""Get answers that satisfy a schema, with any model. Needs a running server (`make serve`).

The questions share their instructions, which are computed once. Usage: python json_schema.py [http://127.0.0.1:8000]
"""

import os
import sys
from typing import Literal

from openai import OpenAI
from pydantic import BaseModel, ConfigDict, Field


class Animal(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["mammal", "bird", "fish", "insect"]
    legs: Literal[0, 2, 4, 6]
    can_fly: bool
    sound: str = Field(max_length=12)


url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("RADIXSERVE_API_KEY", "none"))
model = client.models.list().data[0].id
system = {"role": "system", "content": "You describe animals as JSON objects."}

for name in ("cow", "owl", "ant"):
    messages = [system, {"role": "user", "content": f"Describe a {name}."}]
    reply = client.chat.completions.parse(model=model, messages=messages, response_format=Animal, max_tokens=100, temperature=0)
    usage = reply.usage
    print(f"[{usage.prompt_tokens_details.cached_tokens} of {usage.prompt_tokens} prompt tokens cached]")
    print(f"{name}: {reply.choices[0].message.parsed!r}")
