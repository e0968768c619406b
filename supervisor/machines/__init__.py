"""Edges joined into the verbs of the loop. No policy, no journal."""
