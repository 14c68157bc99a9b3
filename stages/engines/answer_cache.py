"""What an endpoint answered, kept on disk by the content of the request.

Not an output: deleting it costs the requests again and nothing else. With it, a run that was
killed asks for nothing twice, and a run from the same inputs gives the same bits although a
server's batches round differently from one day to the next.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class AnswerCache:
    """One JSON file an answer below `folder`; any number of processes may share it."""

    folder: Path

    def get(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer to this request, or None.

        Raises:
            ValueError: the file is not one that `put` wrote.
        """
        path = self._path(request)
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["request"] == request:
                return content["answer"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}: expected an answer of the judge with its request, found something else "
                f"({error!r}): delete this file."
            ) from error
        raise ValueError(f"{path}: expected the request it is named after: delete this file.")

    def put(self, request: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Keep `answer`; it is there as a whole or not at all."""
        path = self._path(request)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"request": request, "answer": answer}, file, ensure_ascii=False)
        Path(temporary).replace(path)

    def _path(self, request: Mapping[str, Any]) -> Path:
        text = json.dumps(request, sort_keys=True, ensure_ascii=False)
        digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
        return self.folder / digest[:2] / f"{digest}.json"
