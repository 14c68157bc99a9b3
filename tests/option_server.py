"""A real HTTP server that answers as an OpenAI-compatible judge would, by a rule of its own."""

import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Endpoint:
    """What it was asked, and how it is to answer."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.failures: list[int] = []
        """HTTP status codes of the next answers, before it works again."""
        self.tokens: Callable[[str], dict[str, float]] = lambda _: {"1": 0.6, " 1": 0.2, "2": 0.1}
        """Of a prompt, the likeliest first tokens and their probabilities."""
        self.tells_logprobs = True
        self.thought = "because"
        """What it writes where it may write more than a token."""
        self.longest: int | None = None
        """A longer prompt is refused with status 400, in the words of vLLM."""
        self.sends: tuple[str, str] | None = None
        """The content type and body of every answer, whatever is asked."""
        self.lock = threading.Lock()
        self.url = ""

    def refuses(self, body: dict[str, Any]) -> bool:
        """Whether the prompt is too long."""
        prompt = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
        return self.longest is not None and len(prompt) > self.longest

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        chat = path.endswith("/chat/completions")
        prompt = body["messages"][-1]["content"] if chat else body["prompt"]
        logprobs = {token: math.log(p) for token, p in self.tokens(prompt).items()}
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
        if chat:
            text = self.thought if body["max_tokens"] > 1 else "1"
            choice["message"] = {"role": "assistant", "content": text}
            top = [{"token": token, "logprob": p} for token, p in logprobs.items()]
            choice["logprobs"] = {"content": [{"token": "1", "logprob": -0.5, "top_logprobs": top}]}
        else:
            choice["text"] = f" {self.thought}" if body["max_tokens"] > 1 else "1"
            choice["logprobs"] = {"tokens": ["1"], "top_logprobs": [logprobs]}
        if not self.tells_logprobs:
            choice["logprobs"] = None
        usage = {"prompt_tokens": 11, "completion_tokens": body["max_tokens"], "total_tokens": 12}
        kind = "chat.completion" if chat else "text_completion"
        result = {"id": "x", "object": kind, "created": 0, "model": body["model"]}
        return result | {"choices": [choice], "usage": usage}


@contextmanager
def serve() -> Iterator[Endpoint]:
    """The server, on a free port of this machine."""
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with endpoint.lock:
                endpoint.requests.append(body)
                endpoint.keys.append(self.headers["Authorization"])
                status = endpoint.failures.pop(0) if endpoint.failures else 200
            refusal = "as asked"
            if status == 200 and endpoint.refuses(body):
                status = 400
                refusal = "This model's maximum context length is 9 tokens. You requested 12."
            if status == 200:
                content = endpoint.answer(self.path, body)
            else:
                content = {"error": {"message": refusal, "type": "x", "code": status}}
            kind, text = endpoint.sends or ("application/json", json.dumps(content))
            sent = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(sent)))
            self.send_header("retry-after-ms", "1")  # tests do not wait
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
