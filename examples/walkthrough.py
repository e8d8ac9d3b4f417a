"""The eleven-slot walkthrough: four requests, one radix tree, two splits, one eviction. Run: python examples/walkthrough.py"""

from radixserve.config import EngineConfig
from radixserve.engine.assemble import assemble
from radixserve.engine.counting_runner import CountingRunner
from radixserve.ipc import EngineInfo, GenerateRequest
from radixserve.limits import Limits
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import as_ids, token_bytes

PROMPTS = ("Why my code throws errors", "Why GPU memory runs out", "Why my code is slow", "Why my code won't compile")
WORDS = list(dict.fromkeys(word for prompt in PROMPTS for word in prompt.split()))  # a word is a token

limits = Limits(vocab_size=len(WORDS), max_context_len=8, num_slots=11, page_size=1)
info = EngineInfo(model="counting", dtype="none", device="cpu", limits=limits, kv_bytes=0, num_threads=1)
engine = assemble(EngineConfig(max_running=1, decode_reserve=0), info, CountingRunner())


def ask(prompt: str) -> int:
    """Runs one request that generates one token; returns how many of its tokens were cached."""
    ids = token_bytes([WORDS.index(word) for word in prompt.split()])
    engine.receive(GenerateRequest(prompt, ids, SamplingParams(max_tokens=1)))
    return engine.step()[0].cached_tokens


for time, prompt in enumerate(PROMPTS):
    print(f'time {time}  "{prompt}"  {ask(prompt)} of 5 tokens cached')
    for depth, node in engine.cache.walk():
        text = " ".join(WORDS[i] for i in as_ids(node.key))
        print(f"{'    ' * (depth + 1)}{text:<24} slots {node.value.tolist()}  last used at {node.last_access_time}")
    print(f"    free slots {engine.cache.pool.free_slots().tolist()}\n")
