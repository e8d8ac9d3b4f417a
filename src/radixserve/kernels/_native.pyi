"""The compiled kernels. Tensors are contiguous and on the CPU. A ValueError names one that is not or has another shape or dtype."""

from torch import Tensor

def level() -> str: ...
def choose_level(name: str) -> None:
    """Runs another level from now on, for tests. Raises ValueError when the CPU or the build lacks it."""

def num_threads() -> int: ...
def set_num_threads(n: int) -> None:
    """Threads of every kernel; by default as many as the process may use. Raises ValueError below 1. No result depends on it."""

class Linear:
    """A weight, bfloat16 [outputs, inputs], packed; and its bias, float32 [outputs]. `inputs` is even.

    `int8`: the weight is rounded to int8 times a scale an output, and so are its inputs in every product, with a scale a row.
    """

    outputs: int
    inputs: int
    def __init__(self, weight: Tensor, bias: Tensor | None = None, int8: bool = False) -> None: ...

class LowRank:
    """An addition to a product: `a` [rank, inputs] and `b` [outputs, rank], bfloat16, packed; `rank` and `inputs` are even."""

    def __init__(self, a: Tensor, b: Tensor) -> None: ...

class LoraBatch:
    """The additions to one product of a step of `rows` rows: each run (weights, first row, row after the last) gets x a^T b^T.

    x a^T is rounded to bfloat16. A row's result does not depend on the other runs.
    """

    def __init__(self, runs: list[tuple[LowRank, int, int]], rows: int) -> None: ...

class RmsNorm:
    """x / rms(x) * weight; float32 [size], computed in float32."""

    def __init__(self, weight: Tensor, eps: float) -> None: ...

class Wrapped:
    """A tensor taken over once, to be passed often: that costs 2 us, most of it in torch. Keeps the tensor's memory."""

    def __init__(self, tensor: Tensor) -> None: ...

AnyTensor = Tensor | Wrapped

def embed(table: AnyTensor, ids: Tensor, x: AnyTensor) -> None:
    """Writes rows `ids` int64 [T] of `table` bfloat16 [vocab, size] to `x` float32 [T, size]."""

def norm_linear(x: AnyTensor, norm: RmsNorm, linear: Linear, y: AnyTensor) -> None:
    """Writes linear(norm(x)) to `y` float32 [T, outputs]; `x` float32 [T, inputs]. The normed x is rounded to bfloat16."""

class StepPositions:
    """The `positions` int64 [T] of a step's tokens, and the `slots` int64 [T] of their K and V.

    `cos`, `sin`: of all positions, float32 [positions, head_dim / 2].
    """

    def __init__(self, cos: AnyTensor, sin: AnyTensor, positions: Tensor, slots: Tensor) -> None: ...

def qkv_rope_store(
    x: AnyTensor,
    norm: RmsNorm,
    linear: Linear,
    q_norm: RmsNorm | None,
    k_norm: RmsNorm | None,
    positions: StepPositions,
    k_pool: AnyTensor,
    v_pool: AnyTensor,
    q: AnyTensor,
    lora: LoraBatch | None = None,
) -> None:
    """Projects norm(x) to the heads of q, k and v, in this order, norms and rotates q and k, and rounds all once to bfloat16.

    `x`: float32 [T, inputs]. q goes to `q` [T, num_heads, head_dim]; k and v to the slots of the pools
    [slots, num_kv_heads, head_dim], all bfloat16.
    """

def linear(x: AnyTensor, linear: Linear, y: AnyTensor, lora: LoraBatch | None = None) -> None:
    """Writes linear(x) to `y` float32 [T, outputs]; `x` bfloat16 [T, inputs]."""

def mlp(
    x: AnyTensor,
    norm: RmsNorm,
    gate_up: Linear,
    down: Linear,
    y: AnyTensor,
    gate_up_lora: LoraBatch | None = None,
    down_lora: LoraBatch | None = None,
) -> None:
    """Writes down(silu(gate) * up) of norm(x) to `y`; both are float32 [T, size]. `gate_up` as for `add_and_mlp`."""

def add_and_mlp(
    x: AnyTensor,
    y: AnyTensor,
    linear: Linear,
    norm: RmsNorm,
    gate_up: Linear,
    down: Linear,
    linear_lora: LoraBatch | None = None,
    gate_up_lora: LoraBatch | None = None,
    down_lora: LoraBatch | None = None,
) -> None:
    """Adds linear(y) to `x` float32 [T, size], then down(silu(gate) * up) of norm(x); `y` bfloat16 [T, inputs].

    The bits are those of `linear` and of `mlp`, each added to `x`, in one region of threads.

    Outputs of `gate_up` are 16 gates, then the 16 ups that belong to them, and so on. What enters a product is rounded to bfloat16.
    """

class AttentionStep:
    """Requests of a step: rows of `slot_table` int32 [rows, positions], tokens with KV after the step, tokens computed in it."""

    def __init__(self, slot_table: Tensor, rows: list[int], seq_lens: list[int], extend_lens: list[int]) -> None: ...

class AttentionPool:
    """K and V of all layers, bfloat16 [num_layers, slots, num_kv_heads, head_dim]; head_dim is a multiple of 8, at most 256."""

    def __init__(self, k_buffer: Tensor, v_buffer: Tensor) -> None: ...
    def attend(self, step: AttentionStep, layer: int, q: AnyTensor, out: AnyTensor, scale: float, window: int) -> None:
        """Writes causal attention to `out`; it and `q` are [T, num_heads, head_dim], float32 or bfloat16. Window 0: none.

        K and V of the step's own tokens are in the pool already.
        """

def argmax(logits: Tensor) -> list[int]:
    """Index of the largest of each row of `logits` float32 [R, V], the lowest of equal ones.

    -1 where there is none to choose: a NaN in the row, or infinity as its largest.
    """

def top_k(logits: Tensor, values: Tensor, ids: Tensor) -> None:
    """Writes the k largest of each row of `logits` float32 [R, V], largest first, equal ones by their index.

    `values`: float32 [R, k], `ids`: int64 [R, k]. Of a row that holds NaN it takes any k.
    """
