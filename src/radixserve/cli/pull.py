"""`radixserve pull`."""

from radixserve.config import EngineConfig
from radixserve.models.registry import resolve


def pull(name: str = EngineConfig.model, /) -> None:
    """Brings a model and prints its path.

    Parameters
    ----------
    name
        Name of a built-in model, or a Hugging Face hub name.
    """
    print(resolve(name))
