"""Complete a few prompts without a server.

The prompts begin with the same instructions, which are computed once. Each line says how much of its prompt was cached.
"""

from radixserve import LLM, SamplingParams

INSTRUCTIONS = """Answer each question about geography with one word, the name of a city, and nothing else.
Question: What is the capital of Italy?
Answer: Rome
"""
COUNTRIES = ["France", "Japan", "Peru", "Kenya"]

llm = LLM("smollm2-135m", kv_cache_memory="1GiB")
prompts = [f"{INSTRUCTIONS}Question: What is the capital of {country}?\nAnswer:" for country in COUNTRIES]
params = SamplingParams(max_tokens=8, temperature=0, stop=("\n",))
for country, generation in zip(COUNTRIES, llm.generate(prompts, params, progress=False), strict=True):
    print(f"[{generation.cached_tokens} of {generation.prompt_tokens} cached] {country}: {generation.text.strip()}")
