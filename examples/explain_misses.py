"""Five requests that reuse less than they could, for five different reasons. Run: python examples/explain_misses.py"""

from radixserve.config import EngineConfig
from radixserve.engine.assemble import assemble
from radixserve.engine.counting_runner import CountingRunner
from radixserve.ipc import EngineInfo, GenerateRequest, Output
from radixserve.limits import Limits
from radixserve.observe.explain_text import describe
from radixserve.observe.observer import Observer
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes

words: dict[str, int] = {}  # a word is a token
limits = Limits(vocab_size=100, max_context_len=16, num_slots=22, page_size=2)
info = EngineInfo(model="counting", dtype="none", device="cpu", limits=limits, kv_bytes=0, num_threads=1)
engine = assemble(EngineConfig(decode_reserve=0), info, CountingRunner())
engine.observer = Observer(engine.scheduler, "lru")


def ask(*prompts: str, salt: str | None = None) -> None:
    """Runs requests that come together and prints what each reused, and why no more."""
    for prompt in prompts:
        ids = token_bytes([words.setdefault(word, len(words)) for word in prompt.split()])
        engine.receive(GenerateRequest(prompt, ids, SamplingParams(max_tokens=1), cache_salt=salt, explain_cache=True))
    while engine.has_work:
        for output in engine.step():
            if isinstance(output, Output) and output.explanation is not None:
                text_of = {number: word for word, number in words.items()}
                after = " ".join(text_of[i] for i in output.explanation.after)
                print(f'"{output.rid}"\n    {output.explanation.reason} at "{after}": {describe(output.explanation)}')


ask("a cat sat on the")  # nothing like it was seen before
ask("a cat sat on the mat today")  # "the" was computed, but did not fill a page of two
ask("a cat sat on the sofa", salt="mine")  # cached, but in the namespace of requests without a salt
ask("no dog ate my fish", "no dog ate my old shoe")  # the second comes while the first is being computed
ask("one two three four five six seven eight nine ten eleven twelve")  # needs room
ask("a cat sat on the mat again")  # evicted for the last one
