"""Serve an exported policy on this machine, by OpenAI's API.

    posttrain serve exported                  http://127.0.0.1:8000/v1/chat/completions
    posttrain serve exported --port 8001
    posttrain serve exported --print          only print the line

The server is vLLM's if vLLM is installed, else the one of transformers. The folder is one that
`posttrain export` wrote, or any model in the format of transformers. To serve other machines, put a
server that checks passwords in front of it; vLLM reads an API key from VLLM_API_KEY.
"""

import importlib.util
import os
import shlex
import sys
from pathlib import Path

from flows.command_line import make_parser, run


def main() -> None:
    """Replace this process by the server, or print its line.

    Raises:
        ValueError: the folder has no model.
    """
    parser = make_parser("flows.serve", __doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--print", action="store_true", help="only print the line")
    options = parser.parse_args()
    if not (options.folder / "config.json").is_file():
        raise ValueError(
            f"expected a folder with a model, found no {options.folder / 'config.json'}: "
            f"posttrain export <policy> {options.folder}"
        )
    server = "vllm" if importlib.util.find_spec("vllm") else "transformers"
    words = [server, "serve", str(options.folder), "--host", "127.0.0.1"]
    words += ["--port", str(options.port)]
    print(shlex.join(words), flush=True)
    if not options.print:
        program = Path(sys.executable).with_name(server)
        os.execvp(program if program.exists() else server, words)


if __name__ == "__main__":
    run(main)
