"""Models that tests share. The tiny one is written anew for each run; the default one must be in the cache folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from radixserve.models.registry import cached
from radixserve.sampling.grammar_llguidance import LLGuidance
from radixserve.text.tokenizer import Tokenizer
from tests.replicas.fleet import running_fleet
from tests.server.running import RunningServer
from tests.tiny_models import EOS_ID, VOCAB_SIZE, make_tiny_model

# How fast a machine draws examples says nothing about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with random weights: a Hugging Face directory."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "llama")


@pytest.fixture(scope="session")
def tokenizer(tiny_model_dir: Path) -> Tokenizer:
    """That of the tiny model."""
    return Tokenizer.load(tiny_model_dir)


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> LLGuidance:
    """Of grammars over the tiny model's vocabulary."""
    return LLGuidance(tokenizer, VOCAB_SIZE, frozenset({EOS_ID}))


@pytest.fixture(scope="session")
def default_model_dir() -> Path:
    """The default model, in the form `resolve` gives it (a GGUF file in its folder). Tests never download."""
    path = cached("smollm2-135m")
    if path is None:
        pytest.skip("smollm2-135m is not in the cache folder: run `radixserve pull smollm2-135m`")
    return path


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server over two replicas of a tiny model. A test may kill them, and waits for two before it needs them."""
    tmp_path = tmp_path_factory.mktemp("fleet")
    model = make_tiny_model(tmp_path / "model", max_position_embeddings=16_384)
    with running_fleet(tmp_path, model) as server:
        yield server
