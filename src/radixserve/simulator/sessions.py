"""Which request goes on from which answer.

A recording doesn't name its users. But the next turn of a chat, or the next call of an agent, begins with the whole prompt of the
one before, and is sent after its answer. So a request follows, of those that were answered when it came, the one with the
longest prompt that it begins with; among equals the one of whose answer it has most, then the last.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from radixserve.cache.node import Node
from radixserve.cache.radix_tree import shared_tokens
from radixserve.simulator.prompt_tree import PromptTree
from radixserve.simulator.requests import SimRequest


def with_sessions(requests: Sequence[SimRequest], answered_s: Sequence[float]) -> list[SimRequest]:
    """The same requests, those that follow another marked so. All have tokens; they are in order of arrival.

    `answered_s`: when the last token of each was known.
    """
    tree = PromptTree()
    ends: dict[Node, list[int]] = defaultdict(list)
    """Of every prompt: who had it."""
    found = []
    for request in requests:
        prompt = request.prompt()
        for node in reversed(tree.path(request.extra_key, prompt[:-4])):
            answered = [number for number in ends.get(node, ()) if answered_s[number] <= request.arrival_s]
            if answered:
                before = max(answered, key=lambda number: (_num_shared(prompt, requests[number]), answered_s[number]))
                request = replace(request, follows=before, pause_s=request.arrival_s - answered_s[before])
                break
        found.append(request)
        ends[tree.insert(request.extra_key, prompt)].append(request.number)
    return found


def _num_shared(prompt: bytes, before: SimRequest) -> int:
    """Tokens of an earlier prompt and answer that a prompt begins with."""
    assert before.tokens is not None
    return shared_tokens(prompt, 0, before.tokens)
