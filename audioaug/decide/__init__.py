"""Decisions: pure functions of records. No torch, no clock, no files.

``predict`` says how long a step of any candidate takes, ``shortlist`` which candidates are worth racing, ``race`` which raced
candidates can be told apart, ``diagnose`` what the bottleneck is, ``recommend`` what to do, ``what_if`` what would change.
"""
