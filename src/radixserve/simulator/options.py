"""Options of `radixserve simulate`; the string under each field is its help. Lists are separated by commas."""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from radixserve.config import check_can_write
from radixserve.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    """The settings to compare: all combinations of the lists."""

    num_slots: str | None = None
    """Sizes of the pool in tokens, as 100k,1M or as shares of all different tokens; by default as recorded, or 1%,5%,10%."""

    policy: str | None = None
    """Eviction policies, such as lru,slru. By default the recorded one, or lru."""

    order: str | None = None
    """Orders of admission: prefix,tree,fcfs. By default the recorded one, or prefix."""

    page_size: str | None = None
    """Page sizes in tokens, such as 1,16,512. By default the recorded one, or 1."""

    replicas: str = "1"
    """Numbers of engines, each with a pool of its own, such as 1,4."""

    router: str = "prefix"
    """How a request finds its replica: prefix,round-robin,least-loaded,random."""

    max_running: int | None = None
    """Requests that run at once. By default as recorded, or 64."""

    max_batch_tokens: int | None = None
    """Tokens computed in one step. By default as recorded, or 512."""

    speed: float = 1.0
    """Requests arrive so many times faster than they did, and pauses between an answer and the next turn are as much shorter."""

    cost_model: Path | None = None
    """Times of steps, as `radixserve bench profile` writes them; by default the default model's on two cores of a CPU."""

    serial: bool = False
    """Compare caches alone: prompts one at a time in pages of 512 tokens, evicted by page, leaf and tail, beside Belady."""

    export: Path | None = None
    """Write the requests to this file in Mooncake's form and end."""

    plot: Path | None = None
    """Draw the hit rates over the pool's size: a .png or .html file."""

    json: bool = False
    """Print one JSON object instead of tables."""

    def check(self) -> None:
        """Raises ConfigError for what needs no file to be refused."""
        for name in ("speed", "max_running", "max_batch_tokens"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"--{name.replace('_', '-')} is {value}: must be a number above 0")
        if self.plot is not None and self.plot.suffix not in (".png", ".html"):
            raise ConfigError(f"--plot {self.plot} must end in .png or .html")
        for name, path in (("export", self.export), ("plot", self.plot)):
            check_can_write(name, path)
        unused = [
            name for name in ("order", "page_size", "max_running", "max_batch_tokens", "cost_model", "plot") if getattr(self, name)
        ]
        if self.serial and unused:
            raise ConfigError(
                f"--serial has no use for --{unused[0].replace('_', '-')}: it compares caches alone; leave one of them out"
            )


def numbers(flag: str, text: str) -> list[int]:
    """'1,4' as numbers of at least 1. Raises ConfigError naming the flag."""
    return [_count(flag, item) for item in _items(text)]


def sizes(flag: str, text: str, whole: int) -> list[int]:
    """'100k,1M,5%' in tokens; `whole` is what the shares are of. Raises ConfigError naming the flag."""
    found = []
    for item in _items(text):
        share = re.fullmatch(r"(\d+(?:\.\d+)?)%", item)
        found.append(max(math.floor(whole * float(share[1]) / 100), 1) if share else _count(flag, item))
    return found


def names(flag: str, text: str, known: list[str]) -> list[str]:
    """'lru,slru', each of which must be `known`. Raises ConfigError naming the flag."""
    found = _items(text)
    for name in found:
        if name not in known:
            raise ConfigError(f"{flag} has {name!r}: choose among {', '.join(known)}")
    return found


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")]


def _count(flag: str, item: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kM]?)", item)
    count = int(float(match[1]) * {"": 1, "k": 1_000, "M": 1_000_000}[match[2]]) if match else 0
    if count < 1:
        raise ConfigError(f"{flag} has {item!r}: must be a number of at least 1, such as 16, 100k or 1.5M")
    return count
