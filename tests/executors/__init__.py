"""Tests of the executors: real processes, real signals, real files."""
