"""Explanations as clients see them: with the text of their tokens. In the usage of who asked, and at /cache/explain."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from radixserve.explanation import Branch, Explanation, Loss, Reason
from radixserve.observe.explain_text import describe

Text = Callable[[Sequence[int]], str]
"""The text of token ids."""


class NearestBranch(msgspec.Struct, frozen=True):
    """What the cache has where the prompt goes on differently. `num_tokens`: to the end of the node.

    `text` is of somebody else's prompt: it is left out of what any client may ask for.
    """

    num_tokens: int
    hit_count: int
    admissions_ago: int
    text: str | UnsetType = UNSET


class CacheExplanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why one choice reused what it reused. `position` and `token_id`: of the first prompt token that was computed."""

    request_id: str
    prompt_tokens: int
    cached_tokens: int
    reason: Reason
    message: str
    missed_tokens: int
    position: int
    token_id: int
    text_before: str
    text_after: str
    nearest_branch: NearestBranch | None = None
    evicted: Loss | None = None
    computed_by: str | None = None


def with_text(explanation: Explanation, text: Text, *, branch_text: bool) -> CacheExplanation:
    """The explanation and its words. `branch_text`: show the nearest branch's too."""
    return CacheExplanation(
        request_id=explanation.request_id,
        prompt_tokens=explanation.prompt_tokens,
        cached_tokens=explanation.cached_tokens,
        reason=explanation.reason,
        message=describe(explanation),
        missed_tokens=explanation.missed_tokens,
        position=explanation.cached_tokens,
        token_id=explanation.after[0],
        text_before=text(explanation.before),
        text_after=text(explanation.after),
        nearest_branch=_branch(explanation.branch, text if branch_text else None) if explanation.branch is not None else None,
        evicted=explanation.loss,
        computed_by=explanation.computed_by,
    )


def _branch(branch: Branch, text: Text | None) -> NearestBranch:
    shown = text(branch.token_ids) if text is not None else UNSET
    return NearestBranch(branch.num_tokens, branch.hit_count, branch.admissions_ago, shown)
