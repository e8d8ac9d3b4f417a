"""An explanation in a sentence."""

from radixserve.explanation import Explanation, Loss


def describe(explanation: Explanation) -> str:
    """What was reused and why no more."""
    cached, prompt, missed = explanation.cached_tokens, explanation.prompt_tokens, explanation.missed_tokens
    return f"{cached} of {prompt} prompt tokens were reused: {_why(explanation, _tokens(missed))}"


def _why(explanation: Explanation, missed: str) -> str:
    match explanation.reason:
        case "capped":
            return "all but the last, which is always computed, for it gives the first token of the answer"
        case "prompt_logprobs":
            return "the log probabilities of the rest were asked for, and the cache has none, so all of it was computed"
        case "disabled":
            return "the prefix cache is off (--no-prefix-cache)"
        case "page_rounding":
            return f"{missed} more had been computed, but did not fill a page, and only whole pages are kept"
        case "computing":
            own = explanation.computed_by == explanation.request_id
            other = "another prompt of this request" if own else f"request {explanation.computed_by}"
            return f"{other} was still computing the next {missed}"
        case "flushed":
            return f"the next {missed} went when the cache was flushed"
        case "evicted":
            assert explanation.loss is not None
            return f"the next {missed} were evicted {_loss(explanation.loss)}"
        case "other_namespace":
            return f"the next {missed} are cached in another namespace, that of requests with {_namespace(explanation)}"
        case "unknown":
            return "what comes next was probably cached once, but went too long ago to be remembered"
        case "never_seen":
            return "what comes next was never seen after this prefix, in this namespace"


def _loss(loss: Loss) -> str:
    ago = f"{_admissions(loss.admissions_ago)} ago ({loss.seconds_ago:.1f} s)"
    idle = f"unused for {_admissions(loss.unused_for)} before"
    if loss.by_hand:
        return f"{ago}, {idle}, by hand"
    return f"{ago}, {idle}, for {f'request {loss.request_id}' if loss.request_id else 'a request that is not named'}"


def _namespace(explanation: Explanation) -> str:
    adapter = f"adapter {explanation.adapter!r}" if explanation.adapter else "no adapter"
    return f"{adapter} and {'the same' if explanation.salted else 'no'} cache_salt"


def _tokens(count: int) -> str:
    return f"{count} token{'s' if count != 1 else ''}"


def _admissions(count: int) -> str:
    return f"{count} admission{'s' if count != 1 else ''}"
