"""What people use instead, doing less: a job a message, one POST, one UPDATE; no limits, pace, money or audit.

A module a peer, run as `python -m tests.benchmarks.peers.NAME_worker fill|work` with a `Place` in its environment, so
that the packages of a peer are only imported where they are used.
"""
