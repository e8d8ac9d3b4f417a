"""RadixServe: an LLM serving engine whose KV cache is one radix tree over the tokens of all requests."""

from typing import TYPE_CHECKING, Any

from radixserve.sampling_params import Grammar, SamplingParams

if TYPE_CHECKING:
    from radixserve.llm import LLM as LLM

__version__ = "0.1.0"

__all__ = ["LLM", "Grammar", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    """Loads the offline API, and torch with it, only for those who ask for it."""
    if name == "LLM":
        from radixserve.llm import LLM

        return LLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
