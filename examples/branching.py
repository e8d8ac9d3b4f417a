"""Generate several continuations of one prefix, and continue the best one.

A fork copies nothing: branches share the KV of their common prefix, which is one path in the tree.
"""

from radixserve import LLM, SamplingParams
from radixserve.llm import generate_all

llm = LLM("smollm2-135m", kv_cache_memory="1GiB")
story = llm.branch("Once upon a time, a lighthouse keeper found a message in a bottle. It said:")
branches = story.fork(4)
drafts = generate_all(branches, SamplingParams(max_tokens=16, temperature=0.8, top_p=0.9))
for draft in drafts:
    print(f"[{draft.cached_tokens} of {draft.prompt_tokens} cached] {draft.text!r}")

longest = max(branches, key=lambda branch: len(branch.text))
ending = longest.append(" The keeper smiled and").generate(SamplingParams(max_tokens=16, temperature=0))
print(f"[{ending.cached_tokens} of {ending.prompt_tokens} cached] {longest.text!r}")
