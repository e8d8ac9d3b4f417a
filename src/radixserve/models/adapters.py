"""The adapters of one decoder: their weights by number, and what they add in a step.

An adapter is read once and kept in the layout of the decoder's operations. Numbers are the engine's; none comes twice.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Generic

import torch

from radixserve.batch import AdapterRun, ForwardBatch
from radixserve.models.adapter_checkpoint import TARGETS, OpenAdapter
from radixserve.models.checkpoint import expected_shapes
from radixserve.models.config import ModelConfig
from radixserve.models.low_rank import LayerLowRanks
from radixserve.models.operations import AdapterLayer, Added, Operations, Step, Stream


class Adapters(Generic[AdapterLayer, Added]):
    """For a model of `config`, computed by `operations`; `opened` gives the adapter in a directory, or the part for that model."""

    reads_files = True

    def __init__(
        self,
        config: ModelConfig,
        dtype: torch.dtype,
        device: torch.device,
        operations: Operations[Stream, Step, AdapterLayer, Added],
        opened: OpenAdapter,
    ) -> None:
        self._config = config
        self._opened = opened
        self._dtype = dtype
        self._device = device
        self._of_layer = operations.adapter_layer
        self._add = operations.add
        self._layers: dict[int, list[AdapterLayer]] = {}
        """Of each adapter, by layer."""
        self._none: list[Added | None] = [None] * config.num_layers
        self._last: tuple[list[AdapterRun], int, Sequence[Added | None]] = ([], 0, self._none)
        """Runs and tokens of the last step that had adapters, and what they added: decodes repeat them."""

    def read(self, directory: str) -> tuple[list[AdapterLayer], str]:
        """Reads the adapter in a PEFT directory, in any thread; returns it by layer, and in a few words. Raises ModelError."""
        checkpoint = self._opened(Path(directory), self._config)
        shapes, modules = expected_shapes(self._config), set(checkpoint.modules)
        layers = []
        for index in range(self._config.num_layers):
            names = {name: f"model.layers.{index}.{place}" for name, place in TARGETS.items()}
            sizes = {name: shapes[f"{module}.weight"][0] for name, module in names.items()}
            parts = {
                name: checkpoint.read(module, self._dtype, self._device) for name, module in names.items() if module in modules
            }
            layers.append(self._of_layer(LayerLowRanks.of(parts, sizes)))
        config = checkpoint.config
        made_for = f", made for {config.base_model_name_or_path}" if config.base_model_name_or_path else ""
        return layers, f"rank {config.r}, {len(modules)} modules{made_for}"

    def put(self, number: int, adapter: list[AdapterLayer]) -> None:
        """Takes in what `read` gave: steps may name it from now on."""
        self._layers[number] = adapter

    def remove(self, number: int) -> None:
        """Forgets an adapter, which no later step may name."""
        del self._layers[number]
        self._last = ([], 0, self._none)

    def added(self, batch: ForwardBatch) -> Sequence[Added | None]:
        """What each layer of a step takes: None where it has no adapters."""
        runs, num_tokens = batch.adapters, len(batch.input_ids)
        if not runs:
            return self._none
        if self._last[:2] != (runs, num_tokens):
            of_runs = [(self._layers[run.load], run.begin, run.end) for run in runs]
            layers = [
                self._add([(layers[index], begin, end) for layers, begin, end in of_runs], num_tokens)
                for index in range(self._config.num_layers)
            ]
            self._last = (runs, num_tokens, layers)
        return self._last[2]
