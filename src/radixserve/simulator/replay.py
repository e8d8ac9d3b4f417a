"""A recorded run once more, message by message and step by step, through the real scheduler and cache without the model.

Every step must end with the digest that was recorded: the same requests in the same batches and slots, and as much evicted.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from radixserve.batch import ForwardBatch
from radixserve.config import EngineConfig
from radixserve.engine.assemble import assemble
from radixserve.engine.counting_runner import CountedStep
from radixserve.engine.engine import Engine
from radixserve.engine.grammars import Grammars
from radixserve.engine.recording import RecordedStep
from radixserve.engine.runner import Runner
from radixserve.errors import RadixServeError
from radixserve.ipc import EngineInfo, EngineInput, EngineOutput, GenerateRequest, TokenLogprob
from radixserve.limits import Limits
from radixserve.scheduler.digest import Digest
from radixserve.simulator.free_grammars import FreeGrammars
from radixserve.simulator.recordings import Recording


class ReplayError(RadixServeError):
    """The same messages led to another decision than in the recorded run."""


@dataclass
class ReplayRunner:
    """Gives the tokens of the recorded step in place of sampling; a request that stopped by itself is given `end_id`."""

    end_id: int
    step: RecordedStep | None = None
    launched: ForwardBatch | None = None

    def launch(self, batch: ForwardBatch) -> CountedStep:
        assert self.step is not None
        self.launched = batch
        forced = dict(self.step.forced)
        tokens = dict(self.step.tokens) | {arrival: self.end_id for arrival in self.step.stopped if arrival not in forced}
        if list(tokens) != [req.arrival for req in batch.sampled]:
            raise ReplayError(f"requests {[req.arrival for req in batch.sampled]} get a token: recorded were {list(tokens)}")
        scores = [[TokenLogprob(0, 0.0)] * run.length for run in batch.scored]
        return CountedStep(list(tokens.values()), [None] * len(tokens), scores)


class Replay:
    """A recording and the engine that goes through it again. `num_steps` counts those whose digests were compared."""

    def __init__(self, recording: Recording) -> None:
        header = recording.header
        config = msgspec.convert(header.settings, EngineConfig)
        self._recording = recording
        self._runner = ReplayRunner(end_id=header.limits.vocab_size)
        self._digest = Digest()
        self._grammars = FreeGrammars()
        self.engine = counting_engine(config, header.limits, self._runner, header.limits.vocab_size, self._grammars)
        self.num_steps = 0

    def steps(self) -> Iterator[tuple[RecordedStep, list[EngineOutput]]]:
        """Goes through every step; yields it with what the engine answered. Raises ReplayError at the first that differs."""
        for number, step in enumerate(self._recording.steps(), start=1):
            self._runner.step, self._runner.launched = step, None
            self._grammars.forced_ids = _forced(step, self._runner.end_id)
            for message in step.messages:
                self.engine.receive(_until_stopped(message))
            outputs = self.engine.step()
            batch = self._runner.launched
            digest = self._digest.add(batch, self.engine.cache) if batch is not None else ""
            if digest != step.digest:
                raise ReplayError(f"step {number} differs from the recorded one: not the same batch, slots or evictions")
            self.num_steps += 1
            yield step, outputs

    def run(self) -> None:
        """Goes through every step."""
        for _ in self.steps():
            pass


def counting_engine(config: EngineConfig, limits: Limits, runner: Runner, end_id: int, grammars: Grammars | None = None) -> Engine:
    """An engine without a model, in which `end_id` ends an answer."""
    info = EngineInfo(model="none", dtype="none", device="cpu", limits=limits, kv_bytes=0, num_threads=1)
    return assemble(config, info, runner, eos_ids=frozenset({end_id}), grammars=grammars)


def _forced(step: RecordedStep, end_id: int) -> dict[int, list[int]]:
    """What was forced, by arrival number; `end_id` stands for a token that ended its request."""
    stopped = set(step.stopped)
    return {arrival: [*run[:-1], end_id] if arrival in stopped else run for arrival, run in step.forced}


def _until_stopped(message: EngineInput) -> EngineInput:
    """Lets `end_id` end a request whose own stops weren't recorded."""
    if isinstance(message, GenerateRequest):
        return msgspec.structs.replace(message, params=msgspec.structs.replace(message.params, ignore_eos=False))
    return message
