"""One server for the tests of this folder, on a tiny model; nobody may leave requests running on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.running import RunningServer, running
from tests.tiny_models import make_tiny_model


@pytest.fixture(scope="session")
def server(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Context 512, pool of 300 slots: a prompt can fit the one and not the other."""
    tmp_path = tmp_path_factory.mktemp("server")
    settings = {"served_model_name": "tiny", "max_body_bytes": 1_000_000}
    with running(tmp_path, tiny_model_dir, server=settings, num_slots=300, max_context_len=512, max_batch_tokens=64) as this:
        yield this


@pytest.fixture(scope="session")
def tool_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A pool with room for the system text that teaches tools: its tokenizer has a token a byte."""
    path = tmp_path_factory.mktemp("tools")
    model = make_tiny_model(path / "llama", max_position_embeddings=4096)
    with running(path, model, server={"served_model_name": "tiny"}, num_slots=6000, max_context_len=4000) as server:
        yield server
        server.wait_idle()
