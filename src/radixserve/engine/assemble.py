"""Puts scheduler, cache and a runner together into an engine: the same way for a model and for a runner that only counts."""

from radixserve.cache.prefix_cache import PrefixCache
from radixserve.cache.slot_table import SlotTable
from radixserve.config import EngineConfig
from radixserve.engine.adapter_reader import AdapterWeights
from radixserve.engine.engine import Engine
from radixserve.engine.grammars import Grammars
from radixserve.engine.runner import Runner
from radixserve.engine.weights import ModelWeights
from radixserve.ipc import EngineInfo
from radixserve.scheduler.admission import find_order
from radixserve.scheduler.scheduler import Scheduler
from radixserve.text.tokenizer import Tokenizer


def assemble(
    config: EngineConfig,
    info: EngineInfo,
    runner: Runner,
    tokenizer: Tokenizer | None = None,
    eos_ids: frozenset[int] = frozenset(),
    grammars: Grammars | None = None,
    adapters: AdapterWeights | None = None,
    weights: ModelWeights | None = None,
) -> Engine:
    """An idle engine with the limits and on the device of `info`, everything else as in `config`."""
    limits = info.limits
    cache = PrefixCache(limits.num_slots, limits.page_size, config.eviction_policy, enabled=config.prefix_cache)
    whole_pages = -(-limits.max_context_len // limits.page_size) * limits.page_size
    scheduler = Scheduler(
        cache,
        SlotTable(config.max_running, whole_pages, info.device),
        order=find_order(config.order),
        max_batch_tokens=config.max_batch_tokens,
        max_passed_over=config.max_passed_over,
        decode_reserve=config.decode_reserve,
    )
    return Engine(info, scheduler, runner, tokenizer, eos_ids, grammars, adapters, weights)
