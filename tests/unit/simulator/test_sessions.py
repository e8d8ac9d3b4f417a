"""Who goes on from whose answer, and that they wait for it in a simulation."""

from dataclasses import replace

import pytest

from radixserve.config import EngineConfig
from radixserve.routing.router import Router
from radixserve.simulator.cost import CostModel
from radixserve.simulator.fleet import Fleet
from radixserve.simulator.requests import SimRequest, from_trace
from radixserve.simulator.sessions import with_sessions
from radixserve.simulator.simulate import Simulation, Timeline
from radixserve.simulator.traces import TraceRequest
from radixserve.tokens import ExtraKey, token_bytes

TENTH_A_TOKEN = CostModel(0.0, 0.1, 0.0, 0.0)


def request(number: int, arrival_s: float, prompt: list[int], answer: list[int], salt: str | None = None) -> SimRequest:
    return SimRequest(
        number=number, arrival_s=arrival_s, prompt_len=len(prompt), output_len=len(answer), max_tokens=len(answer),
        extra_key=ExtraKey(cache_salt=salt), tokens=token_bytes(prompt + answer),
    )  # fmt: skip


def serve(requests: list[SimRequest], cost: CostModel, replicas: int = 1, num_slots: int = 10_000) -> list[Timeline]:
    engines = [Simulation(EngineConfig(), num_slots, 5_000, cost) for _ in range(replicas)]
    return Fleet(engines, Router("round-robin")).run(requests, lambda: None)


def test_the_next_turn_of_a_chat_follows_the_answer() -> None:
    first = request(0, 0.0, [1, 2, 3], [4, 5])
    second = request(1, 7.0, [1, 2, 3, 4, 5, 6], [7])
    found = with_sessions([first, second], [2.0, 8.0])
    assert found == [first, replace(second, follows=0, pause_s=5.0)]


@pytest.mark.parametrize(
    ("later", "why"),
    [
        (request(1, 1.0, [1, 2, 3, 4, 5, 6], [7]), "it came before the answer was done"),
        (request(1, 7.0, [1, 2, 3], [7]), "the same prompt again is somebody else's"),
        (request(1, 7.0, [1, 2, 9, 4, 5, 6], [7]), "it begins otherwise"),
        (request(1, 7.0, [1, 2, 3, 4, 5, 6], [7], salt="other"), "it is another tenant's"),
    ],
)
def test_what_goes_on_from_nothing(later: SimRequest, why: str) -> None:
    requests = [request(0, 0.0, [1, 2, 3], [4, 5]), later]
    assert with_sessions(requests, [2.0, 8.0]) == requests, why


def test_among_equal_prompts_it_follows_the_answer_that_it_has() -> None:
    mine, other = request(0, 0.0, [1, 2], [3, 4]), request(1, 0.0, [1, 2], [3, 5])
    found = with_sessions([mine, other, request(2, 9.0, [1, 2, 3, 4, 8], [9])], [1.0, 2.0, 10.0])
    assert found[2].follows == 0


def test_the_longest_prompt_is_the_turn_before() -> None:
    turns = [request(at, 10.0 * at, list(range(2 * at + 1)), [2 * at + 1]) for at in range(3)]
    assert [found.follows for found in with_sessions(turns, [1.0, 11.0, 21.0])] == [None, 0, 1]


def test_a_turn_waits_for_a_slow_answer_and_then_for_its_pause() -> None:
    chat = [request(0, 0.0, [1] * 50, [4] * 10), request(1, 3.0, [1] * 50 + [4] * 10 + [5] * 20, [7])]
    (timeline,) = serve(with_sessions(chat, [1.0, 4.0]), TENTH_A_TOKEN)
    answered_s = 0.1 * (50 + 9)
    assert timeline.arrived_s == pytest.approx(answered_s + 2.0)
    assert timeline.cached_tokens == 59  # all but the answer's last token
    assert timeline.ttft_s == pytest.approx([5.0, 0.1 * 21])
    (open_loop,) = serve(chat, TENTH_A_TOKEN)
    assert open_loop.cached_tokens == 50


def test_on_faster_replicas_turns_come_sooner() -> None:
    chat = [request(0, 0.0, [1] * 50, [4] * 10), request(1, 30.0, [1] * 50 + [4] * 10 + [5] * 20, [7])]
    (timeline,) = serve(with_sessions(chat, [20.0, 40.0]), TENTH_A_TOKEN)
    assert timeline.arrived_s == pytest.approx(5.9 + 10.0)


def test_whoever_goes_on_from_a_refused_request_comes_too() -> None:
    chat = [request(0, 0.0, [1] * 50, [4] * 10), request(1, 3.0, [1] * 50 + [4] * 10 + [5] * 20, [7])]
    (timeline,) = serve(with_sessions(chat, [1.0, 4.0]), TENTH_A_TOKEN, num_slots=40)
    assert timeline.refused == [0, 1]


@pytest.mark.parametrize("replicas", [2, 3])
def test_replicas_wait_for_each_others_answers(replicas: int) -> None:
    """A long answer on one replica is not jumped over while another's answer brings it a second request."""
    long = TraceRequest(512, 1000, [1], 0.0)
    chat = [TraceRequest(512, 10, [2], 0.0, "a"), TraceRequest(1024, 10, [2, 3], session_id="a", delay=500.0)]
    requests = from_trace([long, *chat])
    timelines = serve(requests, CostModel(0.01, 0.001, 0.0, 0.0), replicas)
    assert max(timeline.arrived_s for timeline in timelines) == pytest.approx(0.01 * 10 + 0.001 * (512 + 9) + 0.5)
    ttft_s = sorted(ttft for timeline in timelines for ttft in timeline.ttft_s)
    assert ttft_s[-1] < 1.1  # the long answer takes 11 s


def test_a_trace_may_have_sessions() -> None:
    lines = [
        TraceRequest(512, 1, [0], 0.0, "a"),
        TraceRequest(1024, 1, [0, 1], session_id="a", delay=2000.0),
        TraceRequest(512, 1, [5], 1000.0, "b"),
        TraceRequest(512, 1, [6], 1500.0, "b"),
    ]
    found = [(r.arrival_s, r.follows, r.pause_s, len(r.pages)) for r in from_trace(lines)]
    assert found == [(0.0, None, 0.0, 1), (1.0, None, 0.0, 1), (1.5, None, 0.0, 1), (2.0, 0, 2.0, 2)]
