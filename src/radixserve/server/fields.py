"""Fields that the bodies of several APIs share: declared once, and translated once."""

from typing import Annotated, Any

import msgspec

from radixserve.errors import ParamError
from radixserve.sampling_defaults import SamplingDefaults
from radixserve.sampling_params import SamplingParams
from radixserve.server.unsupported_fields import RefusesUnsupported, honoured

MAX_SALT_LEN = 256
"""In characters. A salt stays in memory as long as what was cached under it."""

Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""What fits the wire; the engine's limits are narrower."""


class SamplingFields(RefusesUnsupported, kw_only=True):
    """How an answer is sampled, and with whom its cache is shared: the same fields in all APIs."""

    # Every name here is one of RefusesUnsupported: a body may have another base with fields, as only one may add new ones.
    temperature: float | None = None
    top_p: float | None = None
    top_k: Int | None = None
    """0 and -1 are off."""
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: Int | None = None
    ignore_eos: bool | None = None
    cache_salt: str | None = None
    """Requests share cached prefixes only when their salts are equal."""

    def sampling_params(self, defaults: SamplingDefaults, **of_route: Any) -> SamplingParams:
        """The fields as the engine takes them, not yet validated. `defaults`: of those that are not given; `of_route`: fields of
        SamplingParams that the API has in another form."""
        names = honoured(type(self)) & TAKEN_OVER
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if given.get("top_k") == -1:
            given["top_k"] = 0
        for name in ("stop", "stop_token_ids"):
            if isinstance(given.get(name), list):
                given[name] = tuple(given[name])
        return defaults.params(**(given | of_route))


class FullSamplingFields(SamplingFields, kw_only=True):
    """What the completion routes and /generate have besides."""

    n: Int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[Int, float] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[Int] | None = None
    skip_special_tokens: bool | None = None
    """false: special tokens have text in the answer."""


def check_salt(salt: str | None) -> None:
    """Raises ParamError for a salt that is empty or too long."""
    if salt == "":
        raise ParamError("cache_salt", "is empty: send at least one character, or leave it out")
    if salt is not None and len(salt) > MAX_SALT_LEN:
        raise ParamError("cache_salt", f"has {len(salt)} characters: at most {MAX_SALT_LEN} are allowed; send a hash of it")


TAKEN_OVER = {
    "n",
    "min_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "skip_special_tokens",
}
"""Fields of SamplingParams that are taken over as they are, where a body honours them."""
