"""Where each running request's tokens lie: one row of slots a request, on the pool's device, updated in place.

Kernels take the table, the rows and the lengths, so a step ships no slot lists.
"""

import numpy as np
import torch


class SlotTable:
    """int32 [max_running, max_context_len]; entry [row, position] is the slot of that row's token at that position."""

    def __init__(self, max_running: int, max_context_len: int, device: torch.device | str = "cpu") -> None:
        self._host: np.ndarray | None = None
        if torch.device(device).type == "cpu":
            # NumPy's zeros take memory where they are written; few requests are as long as a row.
            self._host = np.zeros((max_running, max_context_len), dtype=np.int32)
            self.table = torch.from_numpy(self._host)
        else:
            self.table = torch.zeros((max_running, max_context_len), dtype=torch.int32, device=device)
        self._free_rows = list(range(max_running - 1, -1, -1))

    @property
    def num_free_rows(self) -> int:
        return len(self._free_rows)

    def take_row(self) -> int:
        """A row that nobody uses. Raises IndexError when there is none."""
        return self._free_rows.pop()

    def give_back(self, row: int) -> None:
        self._free_rows.append(row)

    def write(self, row: int, start: int, slots: np.ndarray) -> None:
        """Sets positions [start, start + len(slots)) of a row. `slots`: int32."""
        if self._host is not None:
            self._host[row, start : start + len(slots)] = slots
        else:
            self.table[row, start : start + len(slots)] = torch.from_numpy(slots)

    def write_pages(self, rows: list[int], starts: list[int], slots: np.ndarray) -> None:
        """Sets the positions of one page from `starts[i]` on in each row `rows[i]`. `slots`: int32, as many a row."""
        pages = slots.reshape(len(rows), -1)
        at = np.array(rows)[:, None], np.array(starts)[:, None] + np.arange(pages.shape[1])
        if self._host is not None:
            self._host[at] = pages
        else:
            self.table[tuple(map(torch.from_numpy, at))] = torch.from_numpy(pages).to(self.table.device)
