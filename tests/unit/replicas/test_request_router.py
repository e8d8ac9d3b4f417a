"""What the request router asks the shared state, and tells it. No Ray runs here."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from ray.exceptions import RayActorError
from ray.serve._private.request_router.common import RequestRoutingContext
from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from radixserve.ipc import GenerateRequest
from radixserve.replicas import request_router
from radixserve.replicas.request_router import PrefixRequestRouter
from radixserve.routing.prompt import Prompt
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import ExtraKey, token_bytes

TOKENS = token_bytes([1] * 100)
REQUEST = GenerateRequest("rid", TOKENS, SamplingParams(), adapter="lora", cache_salt="salt")


@dataclass
class FakeState:
    """Chooses `choice`, or raises it."""

    choice: str | BaseException | None
    routed: list[tuple[Any, ...]] = field(default_factory=list)
    told: list[tuple[Any, ...]] = field(default_factory=list)

    async def ask(self, method: str, *args: Any) -> str | None:
        assert method == "route"
        self.routed.append(args)
        if isinstance(self.choice, BaseException):
            raise self.choice
        return self.choice

    def tell(self, *message: Any) -> None:
        self.told.append(message)


@dataclass
class Id:
    unique_id: str

    __hash__ = object.__hash__


@dataclass
class FakeReplica:
    replica_id: Id


@dataclass
class Pending:
    args: tuple[Any, ...]
    routing_context: RequestRoutingContext = field(default_factory=RequestRoutingContext)


REPLICAS = [FakeReplica(Id("a")), FakeReplica(Id("b"))]


def router_on(state: FakeState) -> PrefixRequestRouter:
    router = object.__new__(PrefixRequestRouter)  # without the event loop and the metrics of a handle
    router._state = state  # type: ignore[assignment]
    return router


def pending(*args: Any) -> PendingRequest:
    return cast(PendingRequest, Pending(args))


def chosen(state: FakeState, *args: Any) -> list[list[str]]:
    async def run() -> list[list[RunningReplica]]:
        candidates = cast(list[RunningReplica], REPLICAS)
        return await router_on(state).choose_replicas(candidates, pending(*args) if args else None)

    return [[replica.replica_id.unique_id for replica in rank] for rank in asyncio.run(run())]


def test_a_request_goes_where_the_state_says() -> None:
    state = FakeState("b")
    assert chosen(state, REQUEST) == [["b"]]
    assert state.routed == [("rid", Prompt.of(TOKENS, ExtraKey("lora", "salt")), ["a", "b"])]


def test_a_call_to_a_replica_goes_there() -> None:
    assert chosen(FakeState(None), "a", "flush") == [["a"]]


@pytest.mark.parametrize("choice", [None, "gone", RayActorError()])
def test_serve_chooses_where_the_state_can_t(choice: str | BaseException | None) -> None:
    assert chosen(FakeState(choice), REQUEST) == [["a", "b"]]


def test_serve_chooses_where_the_state_is_silent(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class SilentState(FakeState):
        async def ask(self, method: str, *args: Any) -> str | None:
            return await asyncio.Event().wait() and None

    monkeypatch.setattr(request_router, "ROUTE_S", 0.0)
    assert chosen(SilentState(None), REQUEST) == [["a", "b"]]
    assert "a request goes where Ray Serve sends it: TimeoutError" in caplog.text


@pytest.mark.parametrize("args", [(REQUEST,), ("a", "flush"), ()])
def test_serve_waits_before_it_asks_again(args: tuple[Any, ...]) -> None:
    request = pending(*args)
    asyncio.run(router_on(FakeState("a")).choose_replicas(cast(list[RunningReplica], REPLICAS), request))
    assert request.routing_context.should_backoff


def test_a_call_to_a_replica_that_is_gone_is_answered_by_another() -> None:
    assert chosen(FakeState(None), "c", "flush") == [["a", "b"]]
    assert chosen(FakeState(None)) == [["a", "b"]]


def test_a_request_that_is_cancelled_on_its_way_is_ended() -> None:
    state = FakeState(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        chosen(state, REQUEST)
    assert state.told == [("ended", "rid")]


def test_the_state_hears_of_replicas_that_drain_or_die(monkeypatch: pytest.MonkeyPatch) -> None:
    state = FakeState(None)
    router = router_on(state)
    router._replicas = {replica.replica_id: replica for replica in REPLICAS}

    def update(self: Any, replicas: list[FakeReplica]) -> None:
        self._replicas = {replica.replica_id: replica for replica in replicas}

    monkeypatch.setattr(RequestRouter, "update_replicas", update)
    monkeypatch.setattr(RequestRouter, "on_replica_actor_died", lambda self, replica_id: None)
    router.update_replicas(cast(list[RunningReplica], REPLICAS[1:]))
    router.update_replicas(cast(list[RunningReplica], REPLICAS[1:]))
    router.on_replica_actor_died(cast(ReplicaID, REPLICAS[1].replica_id))
    assert state.told == [("drain", ["a"]), ("leave", "b")]
