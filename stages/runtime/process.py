"""An entry point as a process of its own."""

import atexit
import os
import sys
import threading
from collections.abc import Callable


def run(main: Callable[..., None]) -> None:
    """Call `main` with the words of the command line, and end the process as soon as it returns.

    Threads are waited for and exit handlers called as at any end. What is left out is taking apart
    the million objects that torch and transformers made, a second of every stage's few. An error
    takes the usual way out.
    """
    main(*sys.argv[1:])
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
