"""The offline API: the same engine, in this process, without a server.

from radixserve import LLM, SamplingParams
llm = LLM("smollm2-135m")
print(llm.generate("The capital of France is", SamplingParams(max_tokens=8, temperature=0)).text)
"""

import itertools
import os
import secrets
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast, overload

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from radixserve.config import EngineConfig
from radixserve.engine.build import build_engine
from radixserve.engine.engine import Engine
from radixserve.errors import InvalidRequestError
from radixserve.ipc import (
    AbortRequest,
    CacheNews,
    CommandResult,
    EngineInfo,
    EngineOutput,
    EngineStats,
    FinishReason,
    FlushRequest,
    GenerateRequest,
    LoadAdapter,
    Output,
    PageNews,
    RequestFailed,
    TokenLogprob,
    UnloadAdapter,
)
from radixserve.sampling_params import SamplingParams
from radixserve.text.answer_check import Answers, checks_of
from radixserve.text.tokenizer import Tokenizer
from radixserve.tokens import token_bytes
from radixserve.validation import type_fault

Prompt = str | Sequence[int] | np.ndarray
Messages = list[dict[str, Any]]
Params = SamplingParams | Sequence[SamplingParams] | None


class Options(TypedDict, total=False):
    """Of `generate` and `chat`: a progress bar (for lists; on by default), the namespace, the priority (higher is sooner).

    `adapter`: name of the loaded adapter that answers; None: the base.
    """

    progress: bool
    cache_salt: str | None
    priority: int
    adapter: str | None


@dataclass
class Choice:
    """One answer. `token_ids` holds every generated token, the one that stopped it included."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)


@dataclass
class Generation:
    """What came of one prompt: `n` choices. `cached_tokens` of its `prompt_tokens` were in the tree when it arrived."""

    prompt_ids: np.ndarray
    choices: list[Choice]
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    """Of the tokens after position `logprob_start_len`, if `prompt_logprobs` asked for them; the first token has none."""

    @property
    def text(self) -> str:
        """Of the first choice."""
        return self.choices[0].text

    @property
    def token_ids(self) -> list[int]:
        """Of the first choice."""
        return self.choices[0].token_ids


class LLM:
    """A model, ready to generate. Settings are those of EngineConfig, by name: `LLM("smollm2-135m", num_slots=50_000)`.

    `adapters`: PEFT directories by the names that `generate(…, adapter=NAME)` asks for.

    Raises ConfigError when the model or a setting can't be had.
    """

    def __init__(self, model: str = "smollm2-135m", *, adapters: Mapping[str, str | Path] | None = None, **settings: Any) -> None:
        given = tuple(f"{name}={directory}" for name, directory in (adapters or {}).items())
        settings["adapter"] = (*settings.get("adapter", ()), *given)
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        self.engine: Engine = build_engine(EngineConfig(model=model, **settings))
        self._wakened = threading.Event()
        self.engine.notify(self._wakened.set)
        self._rids = itertools.count()
        self._mail: dict[str, deque[EngineOutput]] = {}
        """Of each open request or command, what the engine sent and its caller hasn't taken yet."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Of the model."""
        assert self.engine.tokenizer is not None
        return self.engine.tokenizer

    def default_params(self, **given: Any) -> SamplingParams:
        """How this model is sampled where `params` are not given; `given` fields count instead of its own."""
        return self.engine.info.sampling_defaults.params(**given)

    @overload
    def generate(  # type: ignore[overload-overlap]  # a str is a Sequence[str] too; the first overload takes it
        self, prompts: str | np.ndarray, params: SamplingParams | None = None, **options: Unpack[Options]
    ) -> Generation: ...
    @overload
    def generate(self, prompts: Sequence[Prompt], params: Params = None, **options: Unpack[Options]) -> list[Generation]: ...
    def generate(
        self, prompts: str | np.ndarray | Sequence[Prompt], params: Params = None, **options: Unpack[Options]
    ) -> Generation | list[Generation]:
        """Answers one prompt (text or an int32 array of token ids), or a list of them in the order given.

        `params` serve all prompts, or are a list with one for each; without them the model's own defaults count
        (`default_params`), of which SamplingParams take nothing. Prompts of a list share whatever prefix they have, with each
        other and with everything before. Raises InvalidRequestError for the first prompt that can't be served; then none is. Raises
        AnswerError when a finished answer breaks the schema that it was held to.
        """
        if isinstance(prompts, str | np.ndarray):
            return self._run([self._token_ids(prompts)], params, {"progress": False, **options})[0]
        return self._run([self._token_ids(prompt) for prompt in prompts], params, options)

    @overload
    def chat(self, conversations: Messages, params: SamplingParams | None = None, **options: Unpack[Options]) -> Generation: ...
    @overload
    def chat(self, conversations: list[Messages], params: Params = None, **options: Unpack[Options]) -> list[Generation]: ...
    def chat(
        self, conversations: Messages | list[Messages], params: Params = None, **options: Unpack[Options]
    ) -> Generation | list[Generation]:
        """Answers one conversation (a list of {"role", "content"}), or a list of them, through the model's chat template."""
        if not conversations or isinstance(conversations[0], dict):
            ids = self.tokenizer.encode_chat(cast(Messages, conversations))
            return self._run([ids], params, {"progress": False, **options})[0]
        if isinstance(conversations, str):
            raise InvalidRequestError(
                'chat takes a list of messages, such as [{"role": "user", "content": "…"}], not a string', param="messages"
            )
        all_ids = [self.tokenizer.encode_chat(messages) for messages in conversations]
        return self._run(all_ids, params, options)

    def stream(self, prompt: Prompt, params: SamplingParams | None = None, *, adapter: str | None = None) -> Iterator[Output]:
        """Answers one prompt piece by piece: joined, `Output.text` is the answer. Closing it early aborts the request."""
        requests = self._requests([self._token_ids(prompt)], [params or self.default_params()], {"adapter": adapter})
        if len(requests) != 1:
            raise InvalidRequestError("stream gives one answer: n must be 1", param="n")
        yield from self._outputs(requests)

    def branch(self, prompt: Prompt) -> "Branch":
        """A prefix to generate from, and to fork."""
        return Branch(self, self._token_ids(prompt))

    def flush(self) -> None:
        """Empties the cache. Raises BusyError while a stream is open."""
        self._command(FlushRequest(self._next_rid()))

    def load_adapter(self, name: str, directory: str | Path, *, replace: bool = False) -> str:
        """Loads an adapter; returns what it is. Raises InvalidRequestError naming what is wrong with it or its name.

        `replace`: one that has the name is unloaded for it.
        """
        return self._command(LoadAdapter(self._next_rid(), name, str(directory), replace))

    def unload_adapter(self, name: str) -> str:
        """Forgets an adapter and what was cached under it. Open streams end with it."""
        return self._command(UnloadAdapter(self._next_rid(), name))

    def _command(self, message: FlushRequest | LoadAdapter | UnloadAdapter) -> str:
        with self._listen([message.rid]) as mail:
            self.engine.receive(message)
            while not mail:
                self._step()
            result = mail.popleft()
        if isinstance(result, RequestFailed):
            raise result.error()
        assert isinstance(result, CommandResult)
        return result.message

    def _token_ids(self, prompt: Prompt) -> np.ndarray:
        """int32 [prompt_len]. Raises InvalidRequestError for what is neither a text nor a row of token ids."""
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        given = np.asarray(prompt)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise InvalidRequestError(
                f"a prompt is {prompt!r:.60}: must be a text or a row of token ids; one row alone goes in a list or as an array",
                param="prompt",
            )
        ids = given.astype(np.int32)
        if given.size and (wide := given[ids != given]).size:
            last = self.engine.info.limits.vocab_size - 1
            raise InvalidRequestError(f"the prompt holds token id {wide[0]}: ids must be between 0 and {last}", param="prompt")
        return ids

    def _next_rid(self) -> str:
        return str(next(self._rids))

    def _requests(self, prompts: list[np.ndarray], params: Sequence[SamplingParams], options: Options) -> list[GenerateRequest]:
        """`n` requests a prompt, neighbours in the list, each with a seed of its own."""
        cache_salt, priority, adapter = options.get("cache_salt"), options.get("priority", 0), options.get("adapter")
        requests: list[GenerateRequest] = []
        for ids, asked in zip(prompts, params, strict=True):
            _check_type(asked)
            self.engine.info.limits.check(ids, asked)
            requests += [
                GenerateRequest(self._next_rid(), token_bytes(ids), own, priority, cache_salt, adapter)
                for own in asked.choices(secrets.randbits(62))
            ]
        return requests

    @contextmanager
    def _listen(self, rids: Iterable[str]) -> Iterator[deque[EngineOutput]]:
        """Collects what the engine sends for these ids."""
        mail: deque[EngineOutput] = deque()
        self._mail.update((rid, mail) for rid in rids)
        try:
            yield mail
        finally:
            for rid in rids:
                del self._mail[rid]

    def _step(self) -> None:
        """One step, for everybody: streams may be open beside this call, and none of them loses a token."""
        if not self.engine.has_work:  # a grammar is being compiled, or an adapter read
            self._wakened.wait()
        self._wakened.clear()
        for output in self.engine.step():
            if not isinstance(output, EngineInfo | EngineStats | CacheNews | PageNews) and output.rid in self._mail:
                self._mail[output.rid].append(output)

    def _outputs(self, requests: list[GenerateRequest]) -> Iterator[Output]:
        """Runs requests to their end; what is left of them when the caller stops listening is aborted."""
        open_rids = dict.fromkeys(request.rid for request in requests)  # a set that keeps its order
        checks = dict(zip(open_rids, checks_of(request.params.grammar for request in requests), strict=True))
        answers = Answers(self.tokenizer.eos_ids)
        for request in requests:
            self.engine.receive(request)
        with self._listen(list(open_rids)) as mail:
            try:
                while open_rids:
                    while not mail:
                        self._step()
                    output = mail.popleft()
                    if isinstance(output, RequestFailed):
                        del open_rids[output.rid]
                        raise output.error()
                    assert isinstance(output, Output)
                    if output.finish_reason is not None:
                        del open_rids[output.rid]
                    check = checks[output.rid]
                    if check is not None and (answer := answers.add(output.rid, output)) is not None:
                        check.check(answer)
                    yield output
            finally:
                for rid in open_rids:
                    self.engine.receive(AbortRequest(rid))

    def _run(self, prompts: list[np.ndarray], params: Params, options: Options) -> list[Generation]:
        _check_options(options)
        each = list(params) if isinstance(params, Sequence) else [params or self.default_params()] * len(prompts)
        if len(each) != len(prompts):
            raise InvalidRequestError(f"there are {len(prompts)} prompts and {len(each)} params: give one, or one for each")
        requests = self._requests(prompts, each, options)
        generations = [
            Generation(ids, [Choice() for _ in range(own.n)], len(ids), len(ids)) for ids, own in zip(prompts, each, strict=True)
        ]
        places = [(generation, choice) for generation in generations for choice in generation.choices]
        owners = {request.rid: place for request, place in zip(requests, places, strict=True)}
        columns = (
            *Progress.get_default_columns()[:2],
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[rate]}"),
        )
        quiet = not options.get("progress", True)
        with Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True) as bar:
            task = bar.add_task("Generating", total=len(requests), rate="")
            for output in self._outputs(requests):
                _add(*owners[output.rid], output)
                if output.finish_reason is not None:
                    bar.update(task, advance=1, rate=f"{output.cached_tokens}/{output.prompt_tokens} cached")
        return generations


class Branch:
    """A growing sequence of tokens that can be forked; forks share the KV of what they have in common through the tree."""

    def __init__(self, llm: LLM, token_ids: np.ndarray) -> None:
        self._llm = llm
        self.token_ids = token_ids

    @property
    def text(self) -> str:
        """All of it, prompt and continuations."""
        return self._llm.tokenizer.decode(self.token_ids)

    def append(self, text: str) -> "Branch":
        """Adds text of the caller's; returns itself."""
        self.token_ids = np.concatenate([self.token_ids, self._llm.tokenizer.encode(text, add_special_tokens=False)])
        return self

    def fork(self, n: int) -> list["Branch"]:
        """`n` branches that go on from here on their own."""
        return [Branch(self._llm, self.token_ids) for _ in range(n)]

    def generate(self, params: SamplingParams | None = None) -> Generation:
        """Continues this branch by the first choice's tokens."""
        return generate_all([self], params)[0]


def generate_all(branches: list[Branch], params: SamplingParams | None = None) -> list[Generation]:
    """Continues branches of one LLM together, in one batch. Each grows by its first choice's tokens, except one that stopped it.

    With a seed, branch i samples by seed + i, so that forks of one branch differ.
    """
    if not branches:
        return []
    asked = params or branches[0]._llm.default_params()
    seeds = [None if asked.seed is None else asked.seed + i for i in range(len(branches))]
    each = [msgspec.structs.replace(asked, seed=seed) for seed in seeds]
    generations = branches[0]._llm.generate([branch.token_ids for branch in branches], each, progress=False)
    for branch, generation in zip(branches, generations, strict=True):
        first = generation.choices[0]
        stopped = first.finish_reason == "stop" and not isinstance(first.stop_reason, str)  # by a token, which ends the text
        grown = first.token_ids[:-1] if stopped else first.token_ids
        branch.token_ids = np.concatenate([branch.token_ids, np.array(grown, dtype=np.int32)])
    return generations


def _check_type(params: SamplingParams) -> None:
    """Raises InvalidRequestError for parameters that are none, or hold a value of another type."""
    if not isinstance(params, SamplingParams):
        raise InvalidRequestError(f"params is a {type(params).__name__}: give SamplingParams(max_tokens=64, …)", param="params")
    if fault := type_fault(msgspec.structs.asdict(params), SamplingParams):
        name, reason = fault
        raise InvalidRequestError(f"{name} is {getattr(params, name, params)!r}: {reason}", param=name)


def _add(generation: Generation, choice: Choice, output: Output) -> None:
    """Adds news of one choice. The fewest cached tokens of all choices is what was there before its siblings."""
    choice.text += output.text
    choice.token_ids += output.token_ids
    choice.logprobs += output.logprobs
    generation.prompt_logprobs += output.prompt_logprobs
    generation.cached_tokens = min(generation.cached_tokens, output.cached_tokens)
    if output.finish_reason is not None:
        choice.finish_reason, choice.stop_reason = output.finish_reason, output.stop_reason


def _check_options(options: Options) -> None:
    """A misspelt salt must not share a cache: Python doesn't check the names of a TypedDict."""
    if unknown := sorted(options.keys() - Options.__annotations__.keys()):
        raise TypeError(f"unknown option {unknown[0]!r}: choose from {', '.join(Options.__annotations__)}")
    if options.get("cache_salt") == "":
        raise InvalidRequestError("cache_salt is empty: give at least one character, or leave it out", param="cache_salt")
