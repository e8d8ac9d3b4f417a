"""What an observer costs a request: explanations, counts and the estimate for other sizes. Run: python benchmarks/observer.py"""

import time

import numpy as np

from radixserve.config import EngineConfig
from radixserve.engine.assemble import assemble
from radixserve.engine.counting_runner import CountingRunner
from radixserve.ipc import EngineInfo, GenerateRequest
from radixserve.limits import Limits
from radixserve.observe.observer import Observer
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes

NUM_REQUESTS = 400
NUM_PREFIXES = 20
NUM_SLOTS = 200_000
VOCAB = 50_000


def microseconds(prompt_len: int, *, observed: bool) -> float:
    """CPU time a request, by an engine without a model. Half of each prompt is one of NUM_PREFIXES prefixes."""
    info = EngineInfo("counting", "none", "cpu", Limits(VOCAB, 2 * prompt_len, NUM_SLOTS, 1), kv_bytes=0, num_threads=1)
    engine = assemble(EngineConfig(max_batch_tokens=8192), info, CountingRunner())
    if observed:
        engine.observer = Observer(engine.scheduler, "lru")
    draw = np.random.default_rng(0)
    half = prompt_len // 2
    prefixes = draw.integers(0, VOCAB, (NUM_PREFIXES, half), dtype=np.int32)
    ends = draw.integers(0, VOCAB, (NUM_REQUESTS, half), dtype=np.int32)
    prompts = [token_bytes(np.concatenate([prefixes[i % NUM_PREFIXES], end])) for i, end in enumerate(ends)]
    begin = time.process_time()
    for number, prompt in enumerate(prompts):
        engine.receive(GenerateRequest(str(number), prompt, SamplingParams(max_tokens=8, ignore_eos=True)))
        while engine.has_work:
            engine.step()
    return (time.process_time() - begin) / NUM_REQUESTS * 1e6


for prompt_len in (256, 4096):
    without, with_it = (min(microseconds(prompt_len, observed=observed) for _ in range(3)) for observed in (False, True))
    print(f"{prompt_len} tokens: {without:.0f} us a request without an observer, {with_it:.0f} us with it")
