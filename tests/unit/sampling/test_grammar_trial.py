"""Compilations that would never end, and processes that die: each costs one request, and no more than the limit."""

import json
import os
import subprocess
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
    return GrammarTrial(tiny_model_dir, VOCAB_SIZE, frozenset({EOS_ID}), limit_s=1.0)


def test_a_compilation_without_end_is_ended(trial: GrammarTrial) -> None:
    with pytest.raises(InvalidRequestError, match="json_schema is too complex: compiling it took longer than 1 s"):
        trial.check(ENDLESS)
    trial.check(GOOD)


def test_refusals_come_in_the_compilers_words(trial: GrammarTrial) -> None:
    with pytest.raises(InvalidRequestError, match="unclosed character class"):
        trial.check(Grammar("regex", "["))
    trial.check(Grammar("regex", "ä\n☃"))


def test_a_child_that_dies_of_a_grammar_says_so(trial: GrammarTrial) -> None:
    child = trial._take()
    kill(child._process)
    assert "ran out of memory or crashed" in (child.ask(GOOD, 1.0) or "")


def test_a_child_whose_end_the_system_has_not_told_yet_did_not_take_too_long(trial: GrammarTrial) -> None:
    child = trial._take()
    child.ask(GOOD, 60.0)
    read_end, write_end = os.pipe()
    os.close(write_end)
    assert child._process.stdout is not None
    child._process.stdout.close()
    child._process.stdout = os.fdopen(read_end)
    assert child.alive
    assert "ran out of memory or crashed" in (child.ask(GOOD, 60.0) or "")


def test_a_child_that_died_before_is_replaced(trial: GrammarTrial) -> None:
    trial.check(GOOD)
    child = trial._idle.get()
    kill(child._process)
    trial._idle.put(child)
    trial.check(GOOD)


def test_a_child_started_ahead_is_the_one_that_compiles(trial: GrammarTrial) -> None:
    trial.start_ahead()
    child = trial._idle.get()
    trial._idle.put(child)
    trial.check(GOOD)
    assert trial._idle.get() is child


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
