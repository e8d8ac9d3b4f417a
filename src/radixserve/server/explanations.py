"""Explanations as clients see them: with the text of their tokens. In the usage of who asked, and at /cache/explain."""

import msgspec

from radixserve.explanation import Explanation, Loss, Reason
from radixserve.observe.wording import describe
from radixserve.text.tokenizer import Tokenizer


class NearestBranch(msgspec.Struct, frozen=True):
    """What the cache has where the prompt goes on differently. `num_tokens`: to the end of the node."""

    text: str
    num_tokens: int
    hit_count: int
    admissions_ago: int


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


def with_text(explanation: Explanation, tokenizer: Tokenizer) -> CacheExplanation:
    """The explanation and its words."""

    def text(ids: tuple[int, ...]) -> str:
        return tokenizer.decode(ids, skip_special_tokens=False)

    branch = explanation.branch
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
        nearest_branch=None
        if branch is None
        else NearestBranch(text(branch.token_ids), branch.num_tokens, branch.hit_count, branch.admissions_ago),
        evicted=explanation.loss,
        computed_by=explanation.computed_by,
    )
