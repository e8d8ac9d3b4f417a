"""The cache as a viewer reads it: nodes, requests and changes as JSON, with text in place of tokens. `docs/ui.md` has the fields.

`redacted` leaves every text out. A cache salt is never shown: a digest, with a random key, tells namespaces apart.
"""

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np

from radixserve.cache_report import CacheTop
from radixserve.observe.mirror import Changes, Mirror, MirrorNode, MirrorRequest
from radixserve.text.tokenizer import Tokenizer
from radixserve.tokens import TOKEN_BYTES, ExtraKey, as_ids, token_len

HEAD_CHARS = 160
TAIL_CHARS = 60
"""What is shown of a long text: its beginning and its end."""

View = dict[str, Any]


class CacheView:
    """Turns a mirror into JSON."""

    def __init__(self, tokenizer: Tokenizer, *, redacted: bool) -> None:
        self._bytes = tokenizer.token_bytes
        self.redacted = redacted

    def snapshot(self, mirror: Mirror) -> View:
        """Everything. Parents come before their children."""
        return self._head(mirror) | {
            "num_slots": mirror.num_slots,
            "page_size": mirror.page_size,
            "redacted": self.redacted,
            "nodes": [self.node(node) for node in _parents_first(mirror, mirror.nodes)],
            "requests": [self.request(request) for request in mirror.requests.values()],
        }

    def change(self, mirror: Mirror, changes: Changes) -> View:
        """What became different: whole nodes where they are new or cut, else only their use. Parents come before their children."""
        return self._head(mirror) | {
            "nodes": [self.node(node) for node in _parents_first(mirror, changes.reshaped)],
            "used": [_use(mirror.nodes[serial]) for serial in sorted(changes.touched - changes.reshaped)],
            "removed": sorted(changes.removed),
            "requests": [self.request(mirror.requests[rid]) for rid in sorted(changes.requests)],
            "ended": sorted(changes.ended),
        }

    def node(self, node: MirrorNode) -> View:
        """One node, or the root of a namespace."""
        view: View = {"id": node.serial, "parent": node.parent, "locks": node.lock_ref}
        if node.extra_key is not None:
            return view | {"namespace": namespace(node.extra_key)}
        return view | {
            "text": self._shortened(node.tokens),
            "tokens": token_len(node.tokens),
            "slots": slot_ranges(node.slots),
            "created": node.created,
            "time": node.time,
            "hits": node.hit_count,
        }

    def request(self, request: MirrorRequest) -> View:
        """One request that waits or runs. `slots` are its own, those that the tree does not have yet."""
        state = request.state
        return {
            "id": state.rid,
            "phase": state.phase,
            "namespace": namespace(state.extra_key),
            "prompt_tokens": state.prompt_tokens,
            "cached_tokens": state.cached_tokens,
            "computed_tokens": state.computed_tokens,
            "generated_tokens": state.generated_tokens,
            "node": state.node,
            "slots": slot_ranges(request.slots),
            "text": self.text(request.last_tokens),
        }

    def text(self, tokens: bytes) -> str:
        """The text of int32 tokens; bytes that are no UTF-8, such as half a character, become U+FFFD. Empty when redacted."""
        if self.redacted:
            return ""
        return b"".join([self._bytes[i] for i in as_ids(tokens).tolist()]).decode(errors="replace")

    def _head(self, mirror: Mirror) -> View:
        return {"clock": mirror.clock, "pins": mirror.pins, "victims": mirror.victims}

    def _shortened(self, tokens: bytes) -> str:
        """At most about HEAD_CHARS + TAIL_CHARS characters; only these are decoded, however long the edge."""
        if token_len(tokens) <= HEAD_CHARS + TAIL_CHARS:
            text = self.text(tokens)
            return text if len(text) <= HEAD_CHARS + TAIL_CHARS else f"{text[:HEAD_CHARS]} … {text[-TAIL_CHARS:]}"
        return (
            self.text(tokens[: HEAD_CHARS * TOKEN_BYTES])[:HEAD_CHARS]
            + " … "
            + self.text(tokens[-TAIL_CHARS * TOKEN_BYTES :])[-TAIL_CHARS:]
        )


_DIGEST_KEY = secrets.token_bytes(32)
"""Of this process alone, so that nobody finds a salt by trying likely ones."""


def salt_digest(cache_salt: str | None) -> str | None:
    """What is shown in place of a salt: the same for the same salt as long as this process lives."""
    if cache_salt is None:
        return None
    return hashlib.blake2b(cache_salt.encode(), key=_DIGEST_KEY, digest_size=6).hexdigest()


def namespace(key: ExtraKey) -> View:
    """A namespace; `salt` is a digest."""
    return {"adapter": key.adapter, "salt": salt_digest(key.cache_salt)}


def top_view(top: CacheTop, view: CacheView) -> View:
    """The answer of /cache/top. `idle`: admissions since the last use."""
    return {
        "clock": top.clock,
        "namespaces": [
            {
                "namespace": namespace(ExtraKey(held.adapter, held.cache_salt)),
                "nodes": held.num_nodes,
                "tokens": held.num_tokens,
                "saved_tokens": held.saved_tokens,
                "unused_tokens": held.unused_tokens,
            }
            for held in top.namespaces
        ],
        "prefixes": [
            {
                "node": prefix.serial,
                "namespace": namespace(ExtraKey(prefix.adapter, prefix.cache_salt)),
                "start": prefix.start,
                "tokens": prefix.num_tokens,
                "hits": prefix.hit_count,
                "saved_tokens": prefix.saved_tokens,
                "idle": top.clock - prefix.time,
                "locks": prefix.lock_ref,
                "text": view.text(prefix.head),
            }
            for prefix in top.prefixes
        ],
    }


def slot_ranges(slots: bytes) -> list[list[int]]:
    """int32 slots as runs [first, last], in order of position."""
    array = as_ids(slots)
    if not len(array):
        return []
    ends = np.append(np.flatnonzero(np.diff(array) != 1), len(array) - 1)
    starts = np.append(0, ends[:-1] + 1)
    return np.stack([array[starts], array[ends]], axis=1).tolist()  # type: ignore[no-any-return]


def search(view: CacheView, path_ordered: Sequence[tuple[int, int, bytes]], wanted: str, limit: int) -> list[int]:
    """Serial numbers of the nodes in whose edge a text ends, whatever its case; it may begin in an edge above.

    `path_ordered`: (serial, parent, tokens), parents first.
    """
    wanted, found = wanted.casefold(), []
    tails: dict[int, str] = {}
    for serial, parent, tokens in path_ordered:
        text = view.text(tokens).casefold()
        above = tails.get(parent, "")
        if wanted in above + text:
            found.append(serial)
            if len(found) == limit:
                break
        tails[serial] = (above + text)[1 - len(wanted) :] if len(wanted) > 1 else ""
    return found


def parents_first(mirror: Mirror) -> list[MirrorNode]:
    """All nodes but the roots, parents before their children."""
    return [node for node in _parents_first(mirror, mirror.nodes) if node.parent]


def _parents_first(mirror: Mirror, serials: Sequence[int] | set[int] | dict[int, MirrorNode]) -> list[MirrorNode]:
    """A node's parent may have a larger number, that of a later split."""
    depths: dict[int, int] = {0: -1}

    def depth(serial: int) -> int:
        path = []
        while serial not in depths:
            path.append(serial)
            serial = mirror.nodes[serial].parent
        at = depths[serial]
        for below in reversed(path):
            at = depths[below] = at + 1
        return at

    return [mirror.nodes[serial] for serial in sorted(serials, key=lambda serial: (depth(serial), serial))]


def _use(node: MirrorNode) -> list[int]:
    return [node.serial, node.time, node.hit_count, node.lock_ref]
