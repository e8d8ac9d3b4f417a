"""`radixserve top`: what the cache of a running server holds, by what its reuse saved."""

import os
import time
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
from cyclopts import Parameter
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from radixserve.cli.options import API_KEY_VARIABLE
from radixserve.errors import ConfigError, RadixServeError

TIMEOUT_S = 10.0
MOST_S = 3600.0
"""Between two looks."""
NUMBER_WIDTH = 6


@dataclass(frozen=True, kw_only=True)
class TopOptions:
    """What to show."""

    url: str = "http://127.0.0.1:8000"
    """The server."""

    api_key: str | None = None
    """Its API key; also read from RADIXSERVE_API_KEY."""

    count: int = 20
    """Prefixes shown."""

    every_s: float = 2.0
    """Seconds between two looks."""

    once: bool = False
    """Print one table and end."""


def top(*, options: Annotated[TopOptions, Parameter(name="*")] = TopOptions()) -> None:
    """Shows until Ctrl-C."""
    if not 0 < options.every_s <= MOST_S:
        raise ConfigError(f"--every-s is {options.every_s}: must be above 0, and an hour at most")
    key = options.api_key or os.environ.get(API_KEY_VARIABLE)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    console = Console()
    with httpx.Client(base_url=options.url, headers=headers, timeout=TIMEOUT_S) as client:
        shown = look(client, options.count)
        if options.once:
            console.print(shown)
            return
        with Live(shown, console=console, screen=True, auto_refresh=False) as live:
            try:
                while True:
                    live.update(shown, refresh=True)
                    time.sleep(options.every_s)
                    shown = look(client, options.count)
            except KeyboardInterrupt:
                return


def look(client: httpx.Client, count: int) -> RenderableType:
    """One look at the server. Raises RadixServeError when it can't be had."""
    stats, found = _get(client, "/server_info")["stats"], _get(client, f"/cache/top?count={count}")
    return Group(_summary(stats), _namespaces(found["namespaces"]), "", _prefixes(found["prefixes"]))


def _get(client: httpx.Client, path: str) -> Any:
    try:
        reply = client.get(path)
        body = reply.json()
    except (httpx.HTTPError, ValueError) as error:
        raise RadixServeError(f"can't read {str(client.base_url).rstrip('/')}{path}: {error}; name a server with --url") from error
    if reply.status_code != 200:
        told = body["error"]["message"] if isinstance(body, dict) and "error" in body else "is this a RadixServe server?"
        raise RadixServeError(f"{path} answered {reply.status_code}: {told}")
    return body


def _summary(stats: dict[str, Any]) -> Text:
    num_slots = max(stats["num_slots"], 1)
    held = stats["evictable_slots"] + stats["protected_slots"]
    rate = stats["cached_tokens"] / max(stats["prompt_tokens"], 1)
    return Text(
        f"pool {num_slots:,} tokens, {held / num_slots:.0%} cached, {stats['free_slots'] / num_slots:.0%} free   "
        f"{stats['num_nodes']:,} nodes   hit rate {rate:.1%}   evicted {stats['evicted_tokens']:,}   "
        f"running {stats['num_running']}, waiting {stats['num_waiting']}\n",
        style="bold",
    )


def _namespaces(namespaces: list[dict[str, Any]]) -> Table:
    table = _table("namespace", "nodes", "tokens", "saved", "never reused", "of its tokens", texts=("namespace",))
    for held in namespaces:
        unused = held["unused_tokens"]
        table.add_row(
            _name(held["namespace"]),
            f"{held['nodes']:,}",
            f"{held['tokens']:,}",
            f"{held['saved_tokens']:,}",
            f"{unused:,}",
            f"{unused / max(held['tokens'], 1):.0%}",
        )
    return table


def _prefixes(prefixes: list[dict[str, Any]]) -> Table:
    table = _table("saved", "hits", "tokens", "from", "idle", "namespace", "text", texts=("namespace", "text"))
    for prefix in prefixes:
        table.add_row(
            f"{prefix['saved_tokens']:,}",
            f"{prefix['hits']:,}",
            f"{prefix['tokens']:,}",
            f"{prefix['start']:,}",
            f"{prefix['idle']:,}",
            _name(prefix["namespace"]),
            Text(repr(prefix["text"])[1:-1]),
        )
    return table


def _table(*columns: str, texts: tuple[str, ...]) -> Table:
    """Numbers are never cut; `text`, the last column, takes what is left."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0), expand="text" in columns)
    for column in columns:
        number = column not in texts
        table.add_column(
            column,
            justify="right" if number else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=max(len(column), NUMBER_WIDTH) if number else None,
            ratio=1 if column == "text" else None,
        )
    return table


def _name(namespace: dict[str, Any]) -> str:
    parts = [f"adapter {namespace['adapter']}"] if namespace["adapter"] else []
    parts += [f"salt {namespace['salt']}"] if namespace["salt"] else []
    return ", ".join(parts) or "shared"
