"""Requests sent to an engine in process, and the books balanced after every step."""

from dataclasses import dataclass, field
from typing import Any

from radixserve.engine.engine import Engine
from radixserve.ipc import AbortRequest, CommandResult, FlushRequest, GenerateRequest, Output, RequestFailed, TokenLogprob
from radixserve.sampling_params import Grammar, SamplingParams
from radixserve.tokens import token_bytes


@dataclass
class Traffic:
    """Feeds an engine and keeps what it answers."""

    engine: Engine
    ignore_eos: bool = True
    answers: dict[str, list[int]] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)
    scores: dict[str, list[TokenLogprob]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    asked: dict[str, tuple[list[int], int]] = field(default_factory=dict)
    params: dict[str, SamplingParams] = field(default_factory=dict)

    def send(
        self,
        prompt: list[int],
        max_tokens: int,
        *,
        salt: str | None = None,
        priority: int = 0,
        temperature: float = 0.0,
        seed: int | None = None,
        grammar: Grammar | None = None,
        **more: Any,
    ) -> str:
        """`more` goes into its SamplingParams."""
        rid = str(len(self.asked))
        self.asked[rid] = (prompt, max_tokens)
        ends = {"ignore_eos": self.ignore_eos, "grammar": grammar}
        params = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed, **ends, **more)
        self.params[rid] = params
        self.engine.receive(GenerateRequest(rid, token_bytes(prompt), params, priority, salt))
        return rid

    def step(self) -> None:
        for output in self.engine.step():
            if isinstance(output, Output):
                self.answers.setdefault(output.rid, []).extend(output.token_ids)
                self.scores.setdefault(output.rid, []).extend(output.prompt_logprobs)
                self.cached.setdefault(output.rid, output.cached_tokens)
                assert self.cached[output.rid] == output.cached_tokens
                if output.finish_reason is not None:
                    assert output.rid not in self.ended
                    self.ended[output.rid] = output.finish_reason
            else:
                assert isinstance(output, CommandResult | RequestFailed)
                if isinstance(output, RequestFailed):
                    self.ended[output.rid] = output.kind
        check_balance(self.engine)

    def play(self, actions: list[tuple[Any, ...]]) -> None:
        """Sends, steps, aborts and flushes as `actions` say, then runs to the end."""
        for action, *args in actions:
            if action == "send":
                prompt, max_tokens, salt, priority = args
                self.send(prompt, max_tokens, salt=salt, priority=priority)
            elif action == "step":
                for _ in range(args[0]):
                    self.step()
            elif action == "abort":
                self.engine.receive(AbortRequest(str(args[0])))
            else:
                self.engine.receive(FlushRequest("flush"))
        self.run()

    def run(self, limit: int = 20_000) -> None:
        for _ in range(limit):
            if not self.engine.has_work:
                return
            self.step()
        raise AssertionError("requests never end")


def check_balance(engine: Engine) -> None:
    """Every slot has one owner, and the tree's own invariants hold."""
    cache = engine.cache
    cache.check()
    owners: list[int] = []
    for req in engine.scheduler.running:
        assert req.lease is not None
        assert len(req.lease.slots) >= req.computed_len
        owners += req.lease.slots[req.lease.tree_len :].tolist()
    assert len(owners) == len(set(owners)) == cache.request_size
    for _, node in cache.walk():
        owners += node.value.tolist()
    assert len(owners) == len(set(owners))
    assert cache.free_size + cache.evictable_size + cache.protected_size + cache.request_size == cache.num_slots
