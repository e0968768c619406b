"""Records of a run to words, tables and JSON documents. Asks nothing of the world and writes nothing.

Everything here works on records as they stand in the journal (names and plain values), not on `core.events`:
`status` and `logs` have 120 ms, and making the classes of all records takes half of that. A test keeps every
name used here equal to one in `core.events`.
"""
