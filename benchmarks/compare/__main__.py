"""`python -m benchmarks.compare`."""

from typing import Annotated

from cyclopts import Parameter

from benchmarks.command import main, make_app
from benchmarks.compare.run import CompareOptions, run

app = make_app(
    "compare",
    "Send the same workloads to our server and to others in turn, and print the ratios.",
    """  python -m benchmarks.compare --tokenizer ./model --peer vllm=http://127.0.0.1:8100
  python -m benchmarks.compare --tokenizer model.gguf --peer llama.cpp=http://127.0.0.1:8200 --pid ours=123 --pid llama.cpp=456""",
)


@app.default
def compare(*, options: Annotated[CompareOptions, Parameter(name="*")]) -> int:
    """Runs the workloads on all servers in turn; returns the exit code."""
    return run(options)


if __name__ == "__main__":
    main(app)
