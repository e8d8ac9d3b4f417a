"""`radixserve chat`."""

import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console

import radixserve
from radixserve.cli.options import EngineFlags, SamplingFlags, SamplingOptions
from radixserve.config import EngineConfig
from radixserve.errors import InvalidRequestError
from radixserve.sampling_params import SamplingParams

if TYPE_CHECKING:
    from radixserve.llm import LLM

with contextlib.suppress(ImportError):
    import readline  # noqa: F401 (gives input() line editing where the platform has it)

Message = dict[str, str]


def chat(
    *,
    system: str | None = None,
    sampling: SamplingFlags = SamplingOptions(),  # noqa: B008 (frozen)
    engine: EngineFlags = EngineConfig(),  # noqa: B008 (frozen)
) -> None:
    """Talks until an empty line or the end of the input. The first adapter answers, if any is given.

    Parameters
    ----------
    system
        The system message, which tells the model how to behave.
    """
    llm = radixserve.LLM(**asdict(engine))
    adapter = next(iter(llm.engine.info.adapters), None)
    params = sampling.params(llm.engine.info.sampling_defaults)
    console = Console(highlight=False, markup=False)
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    while line := _ask():
        messages.append({"role": "user", "content": line})
        try:
            messages.append({"role": "assistant", "content": _answer(llm, messages, params, adapter, console)})
        except InvalidRequestError as error:
            messages.pop()
            console.print(str(error), style="red")


def _ask() -> str:
    try:
        return input("> ").strip()
    except EOFError:
        print()
        return ""


def _answer(llm: "LLM", messages: list[Message], params: SamplingParams, adapter: str | None, console: Console) -> str:
    """Prints the answer as it comes and returns it. The history is encoded anew each turn; its KV is found in the tree."""
    pieces = []
    for output in llm.stream(llm.tokenizer.encode_chat(messages), params, adapter=adapter):
        pieces.append(output.text)
        print(output.text, end="", flush=True)
    console.print(f"\n[{output.cached_tokens} of {output.prompt_tokens} prompt tokens reused]", style="dim")
    return "".join(pieces)
