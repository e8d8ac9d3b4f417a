"""Compiling a grammar on trial, first mask and all, in a process that can be killed: what makes a limit on the time real.

No library promises to come to an end with every grammar, and a thread can't be stopped. So each grammar is compiled by a child
first, which has a time limit and a memory limit; only what that one finished is compiled here, where it takes as long again.
"""

import contextlib
import json
import os
import queue
import resource
import select
import subprocess
import sys
import threading
import traceback
import weakref
from pathlib import Path

from radixserve.errors import InvalidRequestError
from radixserve.sampling.grammar_llguidance import LLGuidance
from radixserve.sampling_params import Grammar
from radixserve.text.tokenizer import Tokenizer

LIMIT_S = 10.0
"""Of one compilation."""
START_LIMIT_S = 60.0
"""Of a child, until it has made its compiler."""
MEMORY_BYTES = 4 << 30
"""What a child may allocate."""
STACK_BYTES = 4 << 20
"""Of the thread that compiles in a child: half of what threads usually have, so that what ends well there does so in the engine."""


class GrammarTrial:
    """Children for one vocabulary, as many as there were trials at once. For several threads."""

    def __init__(self, model: Path, vocab_size: int, eos_ids: frozenset[int], *, limit_s: float = LIMIT_S) -> None:
        """`model`: the tokenizer's GGUF file or directory; the rest as for a compiler."""
        self._arguments = [str(model), str(vocab_size), json.dumps(sorted(eos_ids))]
        self._limit_s = limit_s
        self._idle: queue.SimpleQueue[_Child] = queue.SimpleQueue()

    def start_ahead(self) -> None:
        """Starts a child and does not wait for it: the first grammar then finds it ready."""
        self._idle.put(_Child(self._arguments))

    def check(self, grammar: Grammar) -> None:
        """Returns when the grammar could be compiled; raises InvalidRequestError when it couldn't, or not within the limits."""
        child = self._take()
        error = child.ask(grammar, self._limit_s)
        if child.alive:
            self._idle.put(child)
        if error is not None:
            raise InvalidRequestError(error, param="grammar")

    def _take(self) -> "_Child":
        """One that is idle and lives, or a new one: no grammar is to blame for a child that died before it came."""
        with contextlib.suppress(queue.Empty):
            while True:
                child = self._idle.get_nowait()
                if child.alive:
                    return child
                child.end()
        return _Child(self._arguments)


class _Child:
    """One process and the way to it: a line with a grammar goes in, a line with an error or null comes out."""

    def __init__(self, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "radixserve.sampling.grammar_trial", *arguments]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C at the terminal is for the parent to hear
        )
        self.end = weakref.finalize(self, _end, self._process)  # when the program ends too
        self._ready = False

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, grammar: Grammar, limit_s: float) -> str | None:
        """Why the grammar can't be compiled; a child that fails to answer is gone then."""
        assert self._process.stdin is not None
        if not self._ready:
            self._hear(START_LIMIT_S)
            self._ready = True
        try:
            self._process.stdin.write(json.dumps([grammar.kind, grammar.source]) + "\n")
            self._process.stdin.flush()
            heard = self._hear(limit_s)
        except BrokenPipeError:
            heard = ""
        if heard:
            error: str | None = json.loads(heard)
            return error
        self.end()
        what = f"took longer than {limit_s:g} s" if heard is None else "ran out of memory or crashed"
        return f"the {grammar.kind} is too complex: compiling it {what}; simplify it"

    def _hear(self, limit_s: float) -> str | None:
        """The next line; empty when the child is at its end, None when nothing comes in time."""
        stdout = self._process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], limit_s)
        return stdout.readline() if ready else None


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):  # what it never read
            pipe.close()


def _serve(model: str, vocab_size: str, eos_ids: str) -> None:
    """The child. It ends with its parent, even in the middle of a compilation."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    compiler = LLGuidance(Tokenizer.load(Path(model)), int(vocab_size), frozenset(json.loads(eos_ids)))
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.stack_size(STACK_BYTES)
    threading.Thread(target=_answer, args=(compiler, lines), daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def _answer(compiler: LLGuidance, lines: "queue.SimpleQueue[str]") -> None:
    try:
        while True:
            kind, source = json.loads(lines.get())
            error = None
            try:
                compiler.compile(Grammar(kind, source))
            except InvalidRequestError as refusal:
                error = refusal.message
            print(json.dumps(error), flush=True)
    finally:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
