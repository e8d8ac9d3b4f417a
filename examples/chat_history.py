"""Hold a conversation and see that each turn computes only what is new.

The whole history is sent every time, as in the OpenAI API. Everything before the newest message is in the cache, answers included.
"""

from radixserve import LLM, SamplingParams

QUESTIONS = ["Name three rivers in Europe.", "Which of them is the longest?", "Through which countries does it flow?"]

llm = LLM("smollm2-135m", kv_cache_memory="1GiB")
messages = [{"role": "system", "content": "You answer briefly."}]
for question in QUESTIONS:
    messages.append({"role": "user", "content": question})
    answer = llm.chat(messages, SamplingParams(max_tokens=32, temperature=0))
    messages.append({"role": "assistant", "content": answer.text})
    print(f"> {question}\n{answer.text.strip()}")
    print(f"[{answer.cached_tokens} of {answer.prompt_tokens} prompt tokens cached]\n")
