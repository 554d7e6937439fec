"""Decisions: pure functions of records. No torch, no clock, no files.

``predict`` predicts the step time of any candidate, ``shortlist`` selects those worth racing, ``race`` compares the
raced ones, ``diagnose`` names the bottleneck, ``recommend`` the plan, ``what_if`` what would change it.
"""
