"""The command line: `radixserve serve | chat | generate | pull | bench | demo | info | simulate | top | explain`.

This module holds the table of commands; each names the function that carries it out, which cyclopts imports only when it is
called. So `radixserve --help` loads no torch. The flags of the commands are the fields of the settings classes.
"""

import os
import sys
from collections.abc import Sequence

from cyclopts import App, Parameter

from radixserve import __version__
from radixserve.errors import RadixServeError

app = App(
    name="radixserve",
    help="Serve language models and never compute the same prefix twice.",
    help_epilogue="Start with: radixserve serve, radixserve chat, or radixserve demo --quick.",
    help_format="plaintext",
    version=__version__,
    default_parameter=Parameter(negative_iterable=()),
)

app.command(
    "radixserve.cli.serve:serve",
    help="Serve a model with the OpenAI API on 127.0.0.1:8000.",
    help_epilogue="""Examples:

  radixserve serve
  radixserve serve --model Qwen/Qwen2.5-0.5B-Instruct --port 9000
  radixserve serve --model ./weights.gguf --kv-cache-memory 2GiB --max-context-len 4096
  radixserve serve --adapter sql=./sql-lora --adapter poet=./poet-lora
  radixserve serve --replicas 2
  RADIXSERVE_API_KEY=secret radixserve serve --host 0.0.0.0

Stop it with Ctrl-C: accepted requests get --grace-s seconds to finish.""",
)
app.command(
    "radixserve.cli.chat:chat",
    help="Talk with a model in the terminal.",
    help_epilogue="""Examples:

  radixserve chat
  radixserve chat --system "Answer in one sentence." --temperature 0

An empty line or Ctrl-D ends it. Each turn says how much of its prompt was reused.""",
)
app.command(
    "radixserve.cli.generate:generate",
    help="Complete prompts, without a server.",
    help_epilogue="""Examples:

  radixserve generate "The radix tree is" --max-tokens 32
  radixserve generate --chat "Why is the sky blue?" --temperature 0
  radixserve generate "A, B," "A, C," --json
  radixserve generate < prompt.txt
  radixserve generate --max-tokens 32 -- "- a prompt with a dash"
""",
)
app.command(
    "radixserve.cli.pull:pull",
    help="Bring a model to this machine and print where it lies.",
    help_epilogue="""Examples:

  radixserve pull
  radixserve pull Qwen/Qwen2.5-0.5B-Instruct""",
)
app.command(
    "radixserve.cli.demo:demo",
    help="Show what the cache is worth: fixed workloads with it and without it.",
    help_epilogue="""Examples:

  radixserve demo --quick
  radixserve demo --dtype float32 --json""",
)
app.command(
    "radixserve.cli.top:top",
    help="Watch which prefixes of a running server save most.",
    help_epilogue="""Examples, with a server running:

  radixserve top
  radixserve top --once --count 50 --url http://127.0.0.1:9000""",
)
app.command(
    "radixserve.cli.explain:explain",
    help="Say where the prompts of two requests part, and why, without a server.",
    help_epilogue="""Examples, with request bodies as JSON or plain texts:

  radixserve explain monday.json tuesday.json
  radixserve explain a.txt b.txt --model Qwen/Qwen2.5-0.5B-Instruct --json

Exit code 0: nothing breaks; 3: the prefix breaks; 1: they can't be compared.""",
)
app.command(
    "radixserve.cli.info:info",
    help="Print the versions, the machine and the models that lie on it.",
    help_epilogue="""Example:

  radixserve info --json""",
)
app.command(
    "radixserve.cli.simulate:simulate",
    help="Ask what other settings would have done with a recorded run or a trace.",
    help_epilogue="""Examples:

  radixserve simulate run.jsonl --num-slots 100k,1M --policy lru,slru
  radixserve simulate conversation_trace.jsonl --page-size 16,512 --plot curves.html
  radixserve simulate conversation_trace.jsonl --serial
  radixserve simulate run.jsonl --export trace.jsonl""",
)

bench = App(name="bench", help="Measure a server, or the steps of a model.", help_epilogue="")
bench.command(
    "radixserve.cli.bench:serve",
    help="Send a workload to a server with the OpenAI API and measure its answers.",
    help_epilogue="""Examples, with a server running:

  radixserve bench serve --dataset generated-shared-prefix --gsp-num-groups 4
  radixserve bench serve --dataset mt-bench-101 --dataset-path mtbench101.jsonl --json""",
)
bench.command(
    "radixserve.cli.bench:profile",
    help="Time steps of a model and fit the costs that `radixserve simulate` predicts times with.",
    help_epilogue="""Examples:

  radixserve bench profile
  radixserve bench profile --model Qwen/Qwen2.5-0.5B-Instruct --output qwen.json""",
)
app.command(bench)


def main(args: Sequence[str] | None = None) -> None:
    """Runs one command. Exits with its code if not 0: 1 when a setting or request can't be honoured, 2 for a wrong command line."""
    # Read when torch loads: its threads spin while they wait, which costs a factor of ten on shared cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app(args)
    except RadixServeError as error:
        print(f"radixserve: {error}", file=sys.stderr)
        sys.exit(1)
