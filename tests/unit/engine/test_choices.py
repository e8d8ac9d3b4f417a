"""The choices of one request: its prompt is computed once and branched, whatever its length and whoever else runs."""

import msgspec
import pytest

from radixserve.engine.engine import Engine
from radixserve.ipc import AbortRequest
from radixserve.sampling_params import SamplingParams
from tests.hash_runner import hash_engine, solo
from tests.traffic import Traffic

N, MAX_TOKENS = 8, 4
OTHERS, OTHER_PROMPT, OTHER_TOKENS = 3, 20, 60


def send_choices(traffic: Traffic, prompt: list[int]) -> list[str]:
    """One request for N answers, as a client expands it: in one step."""
    return [traffic.send(prompt, MAX_TOKENS, seed=params.seed) for params in SamplingParams(n=N).choices(7)]


def computed(engine: Engine) -> int:
    return engine.stats().computed_tokens


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("prompt_len", [5, 10, 16, 17, 40, 100])  # shorter than a page; longer than a chunk, which is 16
@pytest.mark.parametrize("loaded", [False, True])
def test_a_prompt_is_computed_once(page_size: int, prompt_len: int, loaded: bool) -> None:
    engine = hash_engine(3000, page_size, max_batch_tokens=16, max_running=16)
    traffic = Traffic(engine)
    prompt = [i % 29 for i in range(prompt_len)]
    spent = 0
    if loaded:
        for i in range(OTHERS):
            traffic.send([30 + i] * OTHER_PROMPT, OTHER_TOKENS)
        for _ in range(8):
            traffic.step()
        spent = OTHERS * (OTHER_PROMPT + OTHER_TOKENS - 1)
    rids = send_choices(traffic, prompt)
    traffic.run()
    assert [traffic.answers[rid] for rid in rids] == [solo(prompt, MAX_TOKENS)] * N
    assert traffic.cached[rids[0]] == 0
    own = computed(engine) - spent - N * (MAX_TOKENS - 1)
    # The last token of a prompt gives each choice its first token. Pages are shared whole: their last part is computed by each.
    assert prompt_len + N - 1 <= own <= prompt_len + (N - 1) * page_size
    if page_size == 1:
        assert [traffic.cached[rid] for rid in rids[1:]] == [prompt_len - 1] * (N - 1)


def test_a_prompt_is_computed_once_while_choices_are_preempted() -> None:
    engine = hash_engine(120, max_batch_tokens=16, max_running=8, decode_reserve=0)
    traffic = Traffic(engine)
    prompt = list(range(40))
    rids = [traffic.send(prompt, 30) for _ in range(N)]
    traffic.run()
    assert engine.stats().num_preemptions > 0
    assert [traffic.answers[rid] for rid in rids] == [solo(prompt, 30)] * N
    assert [traffic.cached[rid] for rid in rids] == [0] + [39] * (N - 1)  # as of the first admission, in every message


def test_only_the_first_choice_scores_the_prompt() -> None:
    asked = SamplingParams(n=3, prompt_logprobs=2, seed=2**63 - 1)
    choices = list(asked.choices(0))
    assert [choice.prompt_logprobs for choice in choices] == [2, None, None]
    assert [choice.seed for choice in choices] == [2**63 - 1, -(2**63), -(2**63) + 1]
    expected = msgspec.structs.replace(asked, n=1, prompt_logprobs=None, seed=-(2**63))
    assert choices[1] == expected


def test_an_aborted_first_choice_leaves_the_others_whole() -> None:
    engine = hash_engine(300, max_batch_tokens=16)
    traffic = Traffic(engine)
    prompt = list(range(45))
    rids = send_choices(traffic, prompt)
    traffic.step()
    engine.receive(AbortRequest(rids[0]))
    traffic.run()
    assert traffic.ended[rids[0]] == "abort"
    assert [traffic.answers[rid] for rid in rids[1:]] == [solo(prompt, MAX_TOKENS)] * (N - 1)
