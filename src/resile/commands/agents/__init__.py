"""Agents judge the parked failures of runs; they see how similar failures were judged before."""
