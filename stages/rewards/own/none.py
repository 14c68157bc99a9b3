"""No reward of one's own: what the word `own` of an entry says that has none."""
