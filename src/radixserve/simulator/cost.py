"""How long a step takes: a sum of four terms, fitted by `radixserve bench profile` to steps of the served model.

    seconds = step_s + token_s * tokens + pair_s * pairs + context_s * context

`tokens` are computed in the step, `pairs` counts for each of them the tokens that it attends to, and `context` the tokens whose KV
the step reads, each once a request.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from radixserve.errors import ConfigError

DEFAULT = Path(__file__).parent / "costs" / "smollm2-135m.json"
"""The default model on two cores of a CPU."""


class StepShape(msgspec.Struct, frozen=True):
    """What a step's time depends on; see the module."""

    tokens: int
    pairs: int
    context: int


class CostModel(msgspec.Struct, frozen=True):
    """Seconds a unit. `source` says what was measured where, `error` the median relative error of the fit."""

    step_s: float
    token_s: float
    pair_s: float
    context_s: float
    source: str = ""
    error: float = 0.0
    longest: int = 0
    """Tokens of the longest request that was measured; what is longer is extrapolated."""

    def seconds(self, shape: StepShape) -> float:
        """Of one step."""
        return self.step_s + self.token_s * shape.tokens + self.pair_s * shape.pairs + self.context_s * shape.context


def shape_of(extend_lens: Sequence[int], seq_lens: Sequence[int]) -> StepShape:
    """Of a step in which request b computes the last `extend_lens[b]` of its first `seq_lens[b]` tokens."""
    pairs = sum(n * length - n * (n - 1) // 2 for n, length in zip(extend_lens, seq_lens, strict=True))
    return StepShape(sum(extend_lens), pairs, sum(seq_lens))


def fit(shapes: Sequence[StepShape], seconds: Sequence[float], source: str, longest: int) -> CostModel:
    """The costs, none below zero, that miss the measured times by the least squares of relative errors."""
    terms = np.array([[1, shape.tokens, shape.pairs, shape.context] for shape in shapes], dtype=np.float64)
    measured = np.array(seconds)
    costs = _non_negative(terms / measured[:, None])
    error = float(np.median(np.abs(terms @ costs / measured - 1)))
    step_s, token_s, pair_s, context_s = costs.tolist()
    return CostModel(step_s, token_s, pair_s, context_s, source, error, longest)


def _non_negative(terms: np.ndarray) -> np.ndarray:
    """x >= 0 for which terms @ x is about 1, leaving out what would be negative, the worst first."""
    kept = list(range(terms.shape[1]))
    while True:
        found = np.linalg.lstsq(terms[:, kept], np.ones(len(terms)), rcond=None)[0]
        if (found >= 0).all():
            costs = np.zeros(terms.shape[1])
            costs[kept] = found
            return costs
        kept.pop(int(found.argmin()))


def load(path: Path | None) -> CostModel:
    """A fitted file, by default that of the default model. Raises ConfigError where it is none."""
    try:
        return msgspec.json.decode((path or DEFAULT).read_bytes(), type=CostModel)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"--cost-model {path} is no file that `radixserve bench profile` wrote: {error}") from error
