"""Stop strings, found in a text that arrives in pieces.

What is shown does not depend on how the text is cut into pieces: the result is that of feeding one character at a time. So the
match that is complete first wins; of those complete at the same character, the longest. Nothing of it is shown.
"""


class StopStrings:
    """Watches one answer. Holds back only what can still become a stop string."""

    def __init__(self, stop: tuple[str, ...]) -> None:
        """`stop`: the strings, none of them empty."""
        self._stop = stop
        self._longest = max(map(len, stop), default=0)
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """Takes the next piece; returns the text that is safe to show now, and the stop string that ended it, if one did.

        After a match nothing more may be pushed, and `finish` has nothing to give.
        """
        if not self._stop:
            return text, None
        pending = self._held + text
        found = [(start + len(stop), start, stop) for stop in self._stop if (start := pending.find(stop)) >= 0]
        if found:
            _, start, stop = min(found)
            self._held = ""
            return pending[:start], stop
        cut = len(pending) - self._undecided(pending)
        self._held = pending[cut:]
        return pending[:cut], None

    def finish(self) -> str:
        """Ends the text without a match; returns what was held back."""
        held, self._held = self._held, ""
        return held

    def _undecided(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._stop):
                return length
        return 0
