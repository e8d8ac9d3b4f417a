"""The exceptions of RadixServe, one tree.

Every message names the value, the limit and the remedy, for whoever reads it: a user at a terminal (`ConfigError`), an API
client (`InvalidRequestError`), or a maintainer (`LockError`, which means that our own bookkeeping was called wrongly).
"""

from functools import partial
from typing import Any


class RadixServeError(Exception):
    """Root of every exception that RadixServe raises on purpose."""


class ConfigError(RadixServeError):
    """A setting can't be honoured at start. The command line prints its one-line message and exits with code 1."""


class ModelError(ConfigError):
    """A model, its weights or its tokenizer is missing, broken or not supported."""


class InvalidRequestError(RadixServeError):
    """A request that can't be served as asked; HTTP 400.

    `param` is the name of the offending field as the client wrote it, `code` a machine-readable reason.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class ParamError(InvalidRequestError):
    """One field has a wrong value: an API words it with its own name of the field.

    The message is `lead`, the field's name and the `problem` ("is -1: must be at least 0").
    """

    def __init__(self, param: str, problem: str, *, lead: str = "", code: str | None = None) -> None:
        super().__init__(f"{lead}{param} {problem}", param=param, code=code)
        self.problem = problem
        self.lead = lead

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ParamError, lead=self.lead, code=self.code), (self.param, self.problem)

    def called(self, name: str) -> "ParamError":
        """The same, of a field that the client calls `name`."""
        return ParamError(name, self.problem, lead=self.lead, code=self.code)


class AnswerError(RadixServeError):
    """A finished answer breaks the schema that it was held to; HTTP 500. It names the keyword, and nothing of the answer."""

    code = "schema_violation"


class BusyError(RadixServeError):
    """The operation needs an idle engine and requests are waiting or running; HTTP 409."""


class OutOfSlotsError(RadixServeError):
    """The pool can't give the slots asked for, even after evicting everything that may be evicted."""


class LockError(RadixServeError):
    """A path was released that is not held: a lock count would have become negative."""


class RankError(RadixServeError):
    """A rank of a model that is split over processes has ended, or decided otherwise than the others: the engine can't go on."""


class EngineDeadError(RadixServeError):
    """The engine process has ended, or does not answer; HTTP 503."""
