"""Complete a few prompts without a server.

The prompts share a prefix. It is computed once: the table says how many tokens of each prompt were found in the cache.
"""

from radixserve import LLM, SamplingParams

COUNTRIES = ["France", "Japan", "Peru", "Kenya"]

llm = LLM("smollm2-135m")
prompts = [f"Question: What is the capital of {country}?\nAnswer:" for country in COUNTRIES]
for generation in llm.generate(prompts, SamplingParams(max_tokens=12, temperature=0, stop=("\n",)), progress=False):
    print(f"{generation.cached_tokens:3} of {generation.prompt_tokens} prompt tokens cached: {generation.text.strip()}")
