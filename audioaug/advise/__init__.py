"""The advisor: ``audioaug advise --model mymodel.py``.

``__main__`` reads the command line, ``model_file`` turns the user's file into a ``training_job``, ``survey`` measures
in order and fills a ``Report``: ``today``, then ``stages``, then races (``racing``) of the ``candidates`` that a
``schedule`` selects. ``progress`` shows what is being measured and writes the files.
"""
