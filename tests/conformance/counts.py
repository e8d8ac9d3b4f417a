"""A pytest plugin of `make conformance`: says at the end which version of each client ran, and how many of its tests passed.

`-p tests.conformance.counts` turns it on.
"""

import sysconfig
from collections import Counter
from importlib.metadata import distributions

import pytest

from tests.server.running import ROOT

CLIENTS = {
    "tests/conformance/test_agents_sdk.py": "openai-agents",
    "tests/conformance/test_anthropic.py": "anthropic",
    "tests/conformance/test_benchmark_tools.py::test_aiperf": "aiperf",
    "tests/conformance/test_benchmark_tools.py::test_guidellm": "guidellm",
    "tests/conformance/test_instructor.py": "instructor",
    "tests/conformance/test_langchain.py": "langchain-openai",
    "tests/conformance/test_litellm.py": "litellm",
    "tests/conformance/test_lm_eval.py": "lm-eval",
    "tests/conformance/test_openai.py": "openai",
    "tests/server/test_openapi.py": "schemathesis",
}
"""The distribution that tests are about, by the beginning of their node ids."""

OTHERS = "requests as others send them"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Writes a line for each client."""
    counts: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.getreports(outcome):
            if outcome != "passed" or report.when == "call":
                counts.setdefault(_client(report.nodeid), Counter())[outcome] += 1
    versions = _versions()
    terminalreporter.section("clients")
    for client, outcomes in sorted(counts.items()):
        named = f"{client} {versions.get(client, '')}".rstrip()
        told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        terminalreporter.write_line(f"{named:32} {told}")


def _client(nodeid: str) -> str:
    return next((client for begin, client in CLIENTS.items() if nodeid.startswith(begin)), OTHERS)


def _versions() -> dict[str, str]:
    """Of what is installed here and in the environment of the tools."""
    tools = sorted((ROOT / ".venv-conformance/lib").glob("*/site-packages"))
    paths = [*map(str, tools), sysconfig.get_path("purelib")]
    return {found.metadata["Name"].lower().replace("_", "-"): found.version for found in distributions(path=paths)}
