"""Compilations that would never end, and processes that die: each costs one request, and no more than the limit."""

import json
import os
import signal
from pathlib import Path

import pytest

from radixserve.errors import InvalidRequestError
from radixserve.sampling.grammar_trial import GrammarTrial
from radixserve.sampling_params import Grammar
from tests.tiny_models import EOS_ID, VOCAB_SIZE

GOOD = Grammar("regex", "[a-z]+")
ENDLESS = Grammar("json_schema", json.dumps({"type": "integer", "multipleOf": 99999999, "minimum": -(10**15), "maximum": 10**15}))


@pytest.fixture
def trial(tiny_model_dir: Path) -> GrammarTrial:
    return GrammarTrial("llguidance", tiny_model_dir, VOCAB_SIZE, frozenset({EOS_ID}), limit_s=1.0)


def test_a_compilation_without_end_is_ended(trial: GrammarTrial) -> None:
    with pytest.raises(InvalidRequestError, match="json_schema is too complex: compiling it took longer than 1 s"):
        trial.check(ENDLESS)
    trial.check(GOOD)


def test_refusals_come_in_the_backends_words(trial: GrammarTrial) -> None:
    with pytest.raises(InvalidRequestError, match="unclosed character class"):
        trial.check(Grammar("regex", "["))
    trial.check(Grammar("regex", "ä\n☃"))


def test_a_child_that_died_is_replaced(trial: GrammarTrial) -> None:
    trial.check(GOOD)
    child = trial._idle.get()
    os.kill(child._process.pid, signal.SIGKILL)
    child._process.wait()
    trial._idle.put(child)
    with pytest.raises(InvalidRequestError, match="crashed"):
        trial.check(GOOD)
    trial.check(GOOD)
