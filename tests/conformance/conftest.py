"""One server for all clients, on the default model. It is small and knows little: where a test needs a sensible answer, a grammar
forces it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.running import RunningServer, running

MODEL = "smollm2-135m"


@pytest.fixture(scope="session")
def server(default_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    settings = {"served_model_name": MODEL}
    with running(tmp_path_factory.mktemp("conformance"), default_model_dir, server=settings, num_threads=2) as this:
        yield this
        this.wait_idle()


@pytest.fixture(autouse=True)
def _no_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever keys this machine has, no client may use them."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
