"""Renderers: pure functions from a record to a string, for a terminal, for a pull request or as one web page.

Each has ``render(report) -> str``; JSON is ``records.to_json``. A report is a sequence of sections (``page``) of typed
parts (``parts``), which every renderer writes in its own way.
"""
