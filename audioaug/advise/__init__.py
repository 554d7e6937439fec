"""The advisor: ``python -m audioaug.advise --model mymodel.py``.

``cli`` reads the command line, ``job`` loads the model file, ``demo`` has what it leaves open, ``survey`` measures
in order and fills a Report: ``today``, then the ``*_stages`` of ``pieces`` on a ``bench``, then races (``racing``) of
``candidates`` that a ``schedule`` chooses; ``progress`` and ``outputs`` show it.
"""
