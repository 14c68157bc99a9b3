"""What answers a policy, turn by turn: tools, games, tasks with feedback."""
