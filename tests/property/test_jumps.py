"""A simulation that jumps over steps is the one that makes them all."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from radixserve.cache.events import CacheEvent, Evicted
from radixserve.config import EngineConfig
from radixserve.routing.router import Router
from radixserve.simulator.cost import CostModel
from radixserve.simulator.fleet import Fleet
from radixserve.simulator.requests import SimRequest
from radixserve.simulator.simulate import Simulation
from radixserve.tokens import token_bytes

COST = CostModel(0.01, 0.001, 1e-6, 1e-5)
shapes = st.tuples(
    st.sampled_from([0, 1, 5, 17, 30, 60]),  # tokens shared with others
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.integers(1, 40),  # answer
    st.integers(0, 5),  # more asked for
    st.sampled_from([0.0, 0.0, 0.005, 0.1, 1.0]),  # seconds after the one before
    st.integers(0, 1),
)


def requests(drawn: list[Any]) -> list[SimRequest]:
    found: list[SimRequest] = []
    now_s = 0.0
    for number, (shared, own, output_len, more, gap_s, priority) in enumerate(drawn):
        now_s += gap_s
        prompt = [*range(shared), *own]
        output = [(number * 31 + at * at) % 50 for at in range(output_len)]
        found.append(
            SimRequest(
                number=number, arrival_s=now_s, prompt_len=len(prompt), output_len=output_len, max_tokens=output_len + more,
                priority=priority, tokens=token_bytes(prompt + output),
            )
        )  # fmt: skip
    return found


def simulate(asked: list[SimRequest], config: EngineConfig, num_slots: int, *, jumps: bool) -> tuple[Any, ...]:
    """Everything that was decided, and the number of steps that the engine made itself."""
    simulation = Simulation(config, num_slots, 200, COST, jumps=jumps)
    simulation.engine.cache.evictor.least_tail = 4
    made: list[None] = []
    step = simulation.engine.step
    simulation.engine.step = lambda: made.append(None) or step()  # type: ignore[method-assign, func-returns-value]
    evictions: list[tuple[int, int, int, int]] = []

    def listen(event: CacheEvent) -> None:
        if isinstance(event, Evicted):
            evictions.append((event.serial, event.num_tokens, event.time, event.last_access_time))

    simulation.engine.cache.listeners.append(listen)
    timeline = Fleet([simulation], Router()).run(asked, lambda: None)[0]
    simulation.engine.cache.check()
    nodes = [(node.serial, node.key, node.last_access_time, node.hit_count) for _, node in simulation.engine.cache.walk()]
    return len(made), timeline, evictions, nodes, simulation.engine.stats()


@settings(max_examples=150)
@given(
    drawn=st.lists(shapes, min_size=1, max_size=25),
    page_size=st.sampled_from([1, 1, 4, 16]),
    pool_pages=st.integers(0, 40),
    budget=st.sampled_from([2, 5, 16, 64]),
    max_running=st.sampled_from([1, 3, 8]),
    order=st.sampled_from(["prefix", "tree", "fcfs"]),
    decode_reserve=st.sampled_from([0, 4, 256]),
)
def test_jumping_decides_the_same_as_stepping(
    drawn: list[Any], page_size: int, pool_pages: int, budget: int, max_running: int, order: Any, decode_reserve: int
) -> None:
    num_slots = max(page_size * pool_pages, 128)
    config = EngineConfig(
        page_size=page_size, max_batch_tokens=budget, max_running=max_running, order=order, decode_reserve=decode_reserve
    )
    asked = requests(drawn)
    _, *stepped = simulate(asked, config, num_slots, jumps=False)
    _, *jumped = simulate(asked, config, num_slots, jumps=True)
    assert jumped == stepped


def test_long_answers_and_prompts_are_jumped_over() -> None:
    asked = requests([(60, [1] * 12, 40, 0, 0.0, 0)] * 2)
    made, timeline, *_ = simulate(asked, EngineConfig(max_batch_tokens=8), 1000, jumps=True)
    assert timeline.steps > 40
    assert made < timeline.steps / 3
