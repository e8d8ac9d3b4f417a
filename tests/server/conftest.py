"""One server for the tests of this folder, on a tiny model; nobody may leave requests running on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.running import RunningServer, running


@pytest.fixture(scope="session")
def server(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Context 512, pool of 300 slots: a prompt can fit the one and not the other."""
    tmp_path = tmp_path_factory.mktemp("server")
    settings = {"served_model_name": "tiny", "max_body_bytes": 1_000_000}
    with running(tmp_path, tiny_model_dir, server=settings, num_slots=300, max_context_len=512, max_batch_tokens=64) as this:
        yield this
