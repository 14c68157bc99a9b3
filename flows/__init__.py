"""Flows run the stages of dvc.yaml side by side, on a schedule, or on other machines."""

import os
import pwd

try:
    pwd.getpwuid(os.getuid())
except KeyError:  # in a container; DVC asks for the name of the user
    os.environ.setdefault("USER", str(os.getuid()))
