"""Whoever watches sees what is: a mirror fed with the engine's news equals the engine, whatever requests and operators do."""

from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from radixserve.engine.engine import Engine
from radixserve.ipc import AbortRequest, CacheCommand, CacheNews, EngineOutput, FlushRequest, RequestFailed, WatchRequest
from radixserve.observe.mirror import Changes, Mirror, MirrorNode
from radixserve.observe.news import News, Snapshot, unseal
from radixserve.tokens import as_ids
from tests.hash_runner import hash_engine
from tests.traffic import Traffic, check_balance

prompts = st.builds(
    lambda shared, own: list(range(shared)) + own,
    st.sampled_from([0, 1, 5, 16, 17, 30]),
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
)
actions = st.one_of(
    st.tuples(st.just("send"), prompts, st.integers(1, 12), st.sampled_from([None, None, "a"])),
    st.tuples(st.just("step"), st.integers(1, 6)),
    st.tuples(st.sampled_from(["pin", "pin subtree", "unpin", "evict"]), st.integers(0, 40)),
    st.tuples(st.just("abort"), st.integers(0, 30)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("watch")),
)


class Watcher:
    """Keeps a mirror, and the changes since it was last looked at."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.mirror: Mirror | None = None
        self.changes = Changes()
        self.failures: list[RequestFailed] = []

    def take(self, outputs: list[EngineOutput]) -> None:
        for output in outputs:
            if isinstance(output, CacheNews):
                match unseal(output.sealed):
                    case Snapshot() as snapshot:
                        self.mirror, self.changes = Mirror(snapshot), Changes()
                    case News() as news:
                        assert self.mirror is not None
                        self.changes.add(self.mirror.apply(news))

    def check(self) -> None:
        if self.mirror is None:
            return
        cache, mirror = self.engine.cache, self.mirror
        expected = {
            node.serial: MirrorNode(
                node.serial, node.parent.serial, node.key, node.slots.tobytes(), node.created, node.last_access_time,
                node.hit_count, node.lock_ref, None, len(node.children),
            )
            for _, node in cache.walk() if node.parent is not None
        }  # fmt: skip
        roots = {root.serial: (key, root.lock_ref, len(root.children)) for key, root in cache.tree.roots.items()}
        assert {serial: node for serial, node in mirror.nodes.items() if node.parent} == expected
        assert {n.serial: (n.extra_key, n.lock_ref, n.num_children) for n in mirror.nodes.values() if not n.parent} == roots
        live = [*self.engine.scheduler.running, *(candidate.req for candidate in self.engine.scheduler.waiting.values())]
        assert set(mirror.requests) == {req.rid for req in live}
        for req in live:
            shown = mirror.requests[req.rid]
            own = req.lease.slots[req.lease.tree_len :].tobytes() if req.lease is not None else b""
            node = req.lease.node.serial if req.lease is not None else 0
            assert (shown.slots, shown.state.node, shown.state.computed_tokens) == (own, node, req.computed_len)
            assert shown.state.generated_tokens == len(req.output_ids)
            assert shown.last_tokens == req.prompt[-len(shown.last_tokens) :]
        assert mirror.victims == [node.serial for node in islice(cache.evictor.queue.upcoming(cache.clock), 12)]
        assert mirror.clock == cache.clock
        assert set(mirror.pins) <= set(expected)
        owned = b"".join([node.slots for node in mirror.nodes.values()] + [shown.slots for shown in mirror.requests.values()])
        assert len(owned) // 4 == len(set(as_ids(owned).tolist())) == cache.num_slots - cache.free_size


@settings(max_examples=150)
@given(
    actions=st.lists(actions, min_size=5, max_size=50),
    page_size=st.sampled_from([1, 1, 4, 16]),
    num_slots=st.integers(64, 160),
    policy=st.sampled_from(["lru", "slru", "fifo"]),
)
def test_a_mirror_equals_the_engine(actions: list[tuple], page_size: int, num_slots: int, policy: str) -> None:
    engine = hash_engine(num_slots, page_size, eviction_policy=policy)
    engine.cache.evictor.least_tail = 4
    traffic, watcher = Traffic(engine), Watcher(engine)

    def step() -> None:
        for output in (outputs := engine.step()):
            if isinstance(output, RequestFailed) and output.rid.isdigit():
                assert "pinned" in output.message
        watcher.take(outputs)
        watcher.check()
        check_balance(engine)

    engine.receive(WatchRequest(True))
    for action, *args in actions:
        serials = [node.serial for _, node in engine.cache.walk()]
        node = serials[args[0] % len(serials)] if serials and args and isinstance(args[0], int) else 1_000_000
        match action:
            case "send":
                traffic.send(args[0], args[1], salt=args[2])
            case "pin" | "pin subtree":
                engine.receive(CacheCommand("pin", "pin", node, subtree=action == "pin subtree"))
            case "unpin" | "evict":
                engine.receive(CacheCommand(action, action, node))
            case "abort":
                engine.receive(AbortRequest(str(args[0])))
            case "flush":
                engine.receive(FlushRequest("flush"))
            case "watch":
                engine.receive(WatchRequest(True))
        if action == "step":
            for _ in range(args[0]):
                step()
    while engine.has_work:
        step()
    engine.receive(WatchRequest(False))
    engine.receive(CacheCommand("unpin", "unpin"))
    engine.receive(FlushRequest("flush"))
    engine.step()
    assert not engine.cache.listeners
    assert engine.cache.free_size == engine.cache.num_slots
