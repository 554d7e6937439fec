"""Decisions: pure functions of records. No torch, no clock, no files.

``predict`` says how long a step of any cell takes, ``shortlist`` which cells are worth racing, ``race`` which raced
cells can be told apart, ``diagnose`` what the bottleneck is, ``recommend`` what to do, ``what_if`` what would change.
"""
