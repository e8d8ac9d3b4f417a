"""`radixserve explain`: where the prompts of two requests part, without a server."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from radixserve.cli.options import JsonFlag
from radixserve.config import EngineConfig
from radixserve.errors import InvalidRequestError
from radixserve.models.registry import resolve
from radixserve.server.openai.bodies import ChatBody
from radixserve.text.dialect import Dialect
from radixserve.text.prefix_break import Cause, Place, find_break, shared_len
from radixserve.text.tokenizer import Tokenizer

BREAKS = 3
"""Exit code when the prefix breaks."""
AROUND = 24
"""Tokens shown on each side of a break."""

CAUSES: dict[Cause, tuple[str, str]] = {
    "tools_order": ("the same tools in another order", "send tools in one order, such as sorted by name"),
    "key_order": ("the same object with its keys in another order", "write objects with their keys in one order"),
    "whitespace": ("whitespace", "build this text in one way"),
    "time": ("a date or a time", "leave it out, round it, or put it behind what does not change, into the last message"),
    "number": ("a number or an id", "put it behind what does not change, into the last message"),
    "template": ("what the chat template adds", "send the same template settings; a template may also write today's date"),
    "tokens": ("the same characters, cut into other tokens", "end texts at a line break; tokens reach over the end of a text"),
    "text": ("the text", "if it has to differ, put it behind what does not change"),
}


@dataclass(frozen=True)
class Comparison:
    """Two prompts. `place` is None where no field differs; `cause` where nothing breaks."""

    tokens: tuple[int, int]
    shared: int
    breaks: bool
    same_namespace: bool
    cause: Cause | None
    place: Place | None
    before: str
    after: tuple[str, str]


def explain(
    first: Annotated[Path, Parameter(name="FIRST")],
    second: Annotated[Path, Parameter(name="SECOND")],
    /,
    *,
    model: str = EngineConfig.model,
    as_json: JsonFlag = False,
) -> int:
    """Compares and prints. Exit code 0: all of the shorter prompt is a prefix of the other; 3: the prefix breaks; 1: can't compare.

    Parameters
    ----------
    first
        A request body as JSON (chat or completion), or a plain text: what is named .txt, or is neither named .json nor begins
        with a brace.
    second
        Another, which is to reuse the first one's prefix.
    model
        Name of a built-in model, a Hugging Face directory or hub name, or a GGUF file: for its tokenizer and chat template.
    """
    tokenizer = Dialect.of(Tokenizer.load(resolve(model))).tokenizer
    found = compare(_read(first), _read(second), tokenizer)
    if as_json:
        print(json.dumps(asdict(found), indent=2, ensure_ascii=False))
    else:
        _print(found, (first.name, second.name))
    return BREAKS if found.breaks else 0


def compare(first: dict[str, Any], second: dict[str, Any], tokenizer: Tokenizer) -> Comparison:
    """Where two request bodies part. Raises InvalidRequestError for what is no request."""
    ours, theirs = _encode(first, tokenizer), _encode(second, tokenizer)
    shared = shared_len(ours, theirs)
    begin = max(shared - AROUND, 0)
    after = tuple(tokenizer.decode(ids[shared : shared + AROUND], skip_special_tokens=False) for ids in (ours, theirs))
    before = tokenizer.decode(ours[begin:shared], skip_special_tokens=False)
    breaks = shared < min(len(ours), len(theirs))
    place = find_break(first, second, (before + after[0], before + after[1])) if breaks else None
    cause: Cause | None = None
    if breaks:
        same_start = after[0][:1] == after[1][:1] != ""
        cause = "tokens" if place is not None and place.cause == "text" and same_start else place.cause if place else "template"
    same_namespace = first.get("cache_salt") == second.get("cache_salt")
    return Comparison(
        (len(ours), len(theirs)), shared, breaks or not same_namespace, same_namespace, cause, place, before, (after[0], after[1])
    )


def _read(path: Path) -> dict[str, Any]:
    """A JSON object is a request body; what begins like none is the text of a prompt.

    Raises InvalidRequestError for a file that can't be read, and for one that begins like a JSON object and is none.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"can't read {path}: {error}") from error
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        if path.suffix == ".txt" or (path.suffix != ".json" and not text.lstrip().startswith("{")):
            return {"prompt": text}
        what = "nested too deeply" if isinstance(error, RecursionError) else error
        raise InvalidRequestError(f"{path} is not JSON: {what}; mend it, or name it .txt if it is a text") from error
    return body if isinstance(body, dict) else {"prompt": body if isinstance(body, str) else text}


def _encode(body: dict[str, Any], tokenizer: Tokenizer) -> list[int]:
    """The prompt's token ids, as the server would make them."""
    if "messages" in body:
        try:
            conversation = msgspec.convert(body, ChatBody).to_conversation(None)
        except msgspec.ValidationError as error:
            raise InvalidRequestError(f"the body is no chat request: {error}") from error
        return [int(token_id) for token_id in conversation.encode(tokenizer)]
    prompt = body.get("prompt")
    if isinstance(prompt, list) and all(isinstance(token_id, int) for token_id in prompt):
        return prompt
    if not isinstance(prompt, str):
        raise InvalidRequestError("the body has neither messages nor a prompt that is one text or one list of token ids")
    return [int(token_id) for token_id in tokenizer.encode(prompt)]


def _print(found: Comparison, names: tuple[str, str]) -> None:
    console = Console(highlight=False)
    width = max(map(len, names))
    for name, count in zip(names, found.tokens, strict=True):
        console.print(f"{name:<{width}}  {count:,} tokens", markup=False)
    console.print(f"{'shared':<{width}}  {found.shared:,} tokens: {found.shared / max(found.tokens[1], 1):.0%} of {names[1]}\n")
    if not found.same_namespace:
        console.print("Their cache_salt differs: they share nothing in the cache, whatever their tokens.", style="bold red")
    if found.cause is None:
        if found.same_namespace:
            console.print("Nothing breaks: all of the shorter prompt is a prefix of the other.", style="bold green")
        return
    what, remedy = CAUSES[found.cause]
    where = f", in {found.place.path}, character {found.place.at}" if found.place is not None else ""
    console.print(
        f"Your prefix breaks here, at token {found.shared:,}{where}: {what}.", style="bold red", markup=False, soft_wrap=True
    )
    for name, after in zip(names, found.after, strict=True):
        line = Text(f"{name:<{width}}  ")
        line.append("…" + _one_line(found.before)[-60:], style="dim").append(_one_line(after)[:60], style="bold yellow").append("…")
        console.print(line, no_wrap=True, overflow="ellipsis")
    console.print(f"\nWhat helps: {remedy}.", markup=False, soft_wrap=True)


def _one_line(text: str) -> str:
    return repr(text)[1:-1]
