"""Measurements, not tests: `make bench` writes docs/benchmarks.md."""
