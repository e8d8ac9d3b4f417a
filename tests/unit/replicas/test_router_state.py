"""The state that handles and replicas share: who is a member, and what each is believed to hold."""

from radixserve.ipc import EngineInfo, EngineStats, PageChange
from radixserve.limits import Limits
from radixserve.replicas.state import Report, RouterState
from radixserve.routing.prompt import PAGE_LEN, Prompt
from tests.fake_fleet import prompt

INFO = EngineInfo("fake", "float32", "cpu", Limits(50, 100_000, 100_000, 1), kv_bytes=0, num_threads=1)
LONG, OTHER = prompt((1, 20 * PAGE_LEN)), prompt((2, 20 * PAGE_LEN))


def state_of(*names: str) -> RouterState:
    state = RouterState("prefix")
    for name in names:
        state.join(name, INFO)
    return state


def serve(state: RouterState, rid: str, sent: Prompt, *among: str) -> str | None:
    """A request from its way in to its end; returns who had it."""
    name = state.route(rid, sent, among)
    state.started(rid)
    state.ended(rid)
    return name


def test_a_prefix_goes_where_it_was_among_those_that_can_be_reached() -> None:
    state = state_of("a", "b")
    first = serve(state, "1", LONG, "a", "b")
    assert first is not None
    assert serve(state, "2", OTHER, "a", "b") != first
    assert serve(state, "3", LONG, "a", "b") == first
    other = "b" if first == "a" else "a"
    assert serve(state, "4", LONG, other) == other
    assert state.route("5", LONG, ["c"]) is None


def test_what_a_replica_reports_corrects_what_was_believed() -> None:
    state = state_of("a", "b")
    first = serve(state, "1", LONG, "a", "b")
    assert first is not None
    other = "b" if first == "a" else "a"
    assert state.report(Report(other, EngineStats(), [PageChange("stored", LONG.pages)]))
    assert state.report(Report(first, EngineStats(), [PageChange("flushed")]))
    assert serve(state, "2", LONG, "a", "b") == other
    assert state.report(Report(other, EngineStats(num_running=3), [PageChange("removed", LONG.pages[::-1])]))
    assert [member.stats.num_running for member in state.members() if member.name == other] == [3]


def test_an_unknown_replica_is_told_to_join_and_one_that_is_gone_is_not() -> None:
    state = state_of("a")
    assert not state.report(Report("b", EngineStats()))
    state.join("b", INFO)
    state.leave("b")
    assert state.report(Report("b", EngineStats()))
    state.join("b", INFO)
    assert [member.name for member in state.members()] == ["a"]


def test_who_joins_again_keeps_its_requests_and_what_it_holds() -> None:
    state = state_of("a", "b")
    name = serve(state, "1", LONG, "a", "b")
    assert state.route("2", LONG, ["a", "b"]) == name
    assert name is not None
    state.join(name, INFO)  # two of its reports were answered by "not known"
    assert [member.num_requests for member in state.members() if member.name == name] == [1]
    assert serve(state, "3", LONG, "a", "b") == name


def test_a_draining_replica_gets_nothing_and_leaves_with_its_last_request() -> None:
    state = state_of("a", "b")
    name = state.route("1", LONG, ["a", "b"])
    assert name is not None
    state.drain([name, "unknown"])
    assert [(member.name, member.draining) for member in state.members() if member.num_requests] == [(name, True)]
    assert serve(state, "2", LONG, "a", "b") != name
    state.ended("1")
    assert name not in [member.name for member in state.members()]


def test_counts_return_to_zero_whoever_says_that_a_request_ended() -> None:
    state = state_of("a")
    state.route("1", LONG, ["a"])
    state.route("1", LONG, ["a"])  # on its second try
    state.route("2", OTHER, ["a"])
    assert [member.num_requests for member in state.members()] == [2]
    state.report(Report("a", EngineStats(), ended=[("1", True), ("2", False)]))
    state.ended("1")
    state.started("2")
    assert [(member.num_requests, member.queue_tokens) for member in state.members()] == [(0, 0)]


def test_a_dead_replica_is_forgotten_with_its_requests() -> None:
    state = state_of("a", "b")
    name = state.route("1", LONG, ["a", "b"])
    assert name is not None
    state.leave(name)
    assert state.route("1", LONG, ["a", "b"]) not in (name, None)
    assert [member.num_requests for member in state.members()] == [1]
