"""Environments of one's own, one a file: a row of `environments` names it, as `on: own/<file>`."""
