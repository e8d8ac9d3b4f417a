"""`radixserve generate`."""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console

import radixserve
from radixserve.cli.options import EngineFlags, JsonFlag, SamplingFlags, SamplingOptions
from radixserve.config import EngineConfig

if TYPE_CHECKING:
    from radixserve.llm import Generation

Prompt = Annotated[str, Parameter(name="PROMPT")]


def generate(
    *prompts: Prompt,
    chat: bool = False,
    as_json: JsonFlag = False,
    sampling: SamplingFlags = SamplingOptions(),  # noqa: B008 (frozen)
    engine: EngineFlags = EngineConfig(),  # noqa: B008 (frozen)
) -> None:
    """Completes prompts together, in one engine. The first adapter answers, if any is given.

    Parameters
    ----------
    prompts
        Texts to continue; by default one, read from standard input.
    chat
        Take each prompt as the first message of a chat.
    """
    texts = list(prompts) or [sys.stdin.read()]
    llm = radixserve.LLM(**asdict(engine))
    adapter = next(iter(llm.engine.info.adapters), None)
    params = sampling.params(llm.engine.info.sampling_defaults)
    progress = sys.stdout.isatty() and not as_json
    if chat:
        conversations = [[{"role": "user", "content": text}] for text in texts]
        generations = llm.chat(conversations, params, progress=progress, adapter=adapter)
    else:
        generations = llm.generate(texts, params, progress=progress, adapter=adapter)
    if as_json:
        print(json.dumps([_as_dict(*pair) for pair in zip(texts, generations, strict=True)], indent=2, ensure_ascii=False))
    else:
        _print(texts, generations)


def _as_dict(prompt: str, generation: "Generation") -> dict[str, Any]:
    return {
        "prompt": prompt,
        "text": generation.text,
        "finish_reason": generation.choices[0].finish_reason,
        "prompt_tokens": generation.prompt_tokens,
        "cached_tokens": generation.cached_tokens,
        "completion_tokens": len(generation.token_ids),
    }


def _print(prompts: list[str], generations: list["Generation"]) -> None:
    """Answers alone when there is one; each under its prompt when there are several."""
    console = Console(highlight=False, markup=False)
    for prompt, generation in zip(prompts, generations, strict=True):
        if len(prompts) > 1:
            console.print(prompt, style="bold")
        console.print(generation.text, soft_wrap=True)
