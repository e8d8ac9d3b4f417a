"""Matches that are kept while the tree changes: of many, the few are found that a change concerns.

A match is filed by the place where it ended and by the token after it. No change of the tree can make it longer but a new leaf
right there that begins with this token, and none shorter but the removal of what it ended in. So inserting and removing look up
one entry; a split moves whole places, and the matches there know nothing of it.
"""

from collections.abc import Iterator

from radixserve.cache.node import Node
from radixserve.tokens import TOKEN_BYTES, ExtraKey


class Place:
    """A point of the tree: inside the edge of a node or at its end, or a namespace's root, whether that exists or not."""

    __slots__ = ("matches", "node", "rest")

    def __init__(self, node: Node | ExtraKey, rest: int = 0) -> None:
        self.node = node
        self.rest = rest
        """Tokens from here to the end of the node's edge."""
        self.matches: dict[bytes, dict[FollowedMatch, None]] = {}
        """Those that end here, by their next token (empty where there is none), each a set that keeps its order."""


class FollowedMatch:
    """The longest cached prefix of `key` (int32 token ids as bytes) in one namespace. Lengths in tokens."""

    __slots__ = ("cached_len", "extra_key", "key", "path_len", "place")

    def __init__(self, key: bytes, extra_key: ExtraKey) -> None:
        self.key = key
        self.extra_key = extra_key
        self.cached_len = 0
        """Whole pages, and tokens of a page that would be copied."""
        self.path_len = 0
        """The whole pages of `cached_len`."""
        self.place = Place(extra_key)
        """Where those end."""

    @property
    def next_token(self) -> bytes:
        """The first token after `path_len`; empty where there is none."""
        return self.key[self.path_len * TOKEN_BYTES : (self.path_len + 1) * TOKEN_BYTES]


class FollowedMatches:
    """All of one tree, which says what it changes."""

    def __init__(self) -> None:
        self._places: dict[Node | ExtraKey, dict[int, Place]] = {}
        """By node and `rest`."""
        self._changed: dict[FollowedMatch, None] = {}

    def __iter__(self) -> Iterator[FollowedMatch]:
        """All, without those that `take_changed` will give."""
        for places in self._places.values():
            for place in places.values():
                for matches in place.matches.values():
                    yield from matches

    def add(self, match: FollowedMatch, node: Node | ExtraKey, rest: int) -> None:
        """Files a match where it ended."""
        places = self._places.setdefault(node, {})
        place = places.get(rest)
        if place is None:
            place = places[rest] = Place(node, rest)
        place.matches.setdefault(match.next_token, {})[match] = None
        match.place = place

    def remove(self, match: FollowedMatch) -> None:
        """Takes a match out that was added; nothing more is said of it."""
        if match in self._changed:
            del self._changed[match]
            return
        place, token = match.place, match.next_token
        del place.matches[token][match]
        if not place.matches[token]:
            self._drop(place, token)

    def take_changed(self) -> list[FollowedMatch]:
        """Takes out the matches that may have become longer or shorter."""
        if not self._changed:
            return []
        changed, self._changed = self._changed, {}
        return list(changed)

    def has_any_at(self, node: Node | ExtraKey) -> bool:
        """Whether a match ends in the edge of a node, or at its end."""
        return node in self._places

    def child_changed(self, parent: Node | ExtraKey, token: bytes) -> None:
        """A leaf that begins with `token` was put below `parent`, or taken away there."""
        place = self._places.get(parent, {}).get(0)
        if place is not None and token in place.matches:
            self._changed |= place.matches[token]
            self._drop(place, token)

    def removed(self, node: Node | ExtraKey) -> None:
        """A node has left the tree."""
        for place in self._places.pop(node, {}).values():
            for matches in place.matches.values():
                self._changed |= matches
            place.matches.clear()  # a match keeps its place until it is followed again: they would be a cycle

    def split(self, lower: Node, upper: Node) -> None:
        """The beginning of a node's edge became that of the new node `upper` above it."""
        places = self._places.get(lower)
        if places is None:
            return
        above = [place for place in places.values() if place.rest >= lower.num_tokens]
        for place in above:
            del places[place.rest]
            place.node, place.rest = upper, place.rest - lower.num_tokens
        if above:
            self._places[upper] = {place.rest: place for place in above}
        if not places:
            del self._places[lower]

    def clear(self) -> None:
        """Everything left the tree."""
        for node in list(self._places):
            self.removed(node)

    def _drop(self, place: Place, token: bytes) -> None:
        """Forgets the matches of a place that go on with `token`, and what is empty then."""
        del place.matches[token]
        if not place.matches:
            places = self._places[place.node]
            del places[place.rest]
            if not places:
                del self._places[place.node]
