"""The advisor: ``python -m audioaug.advise --model mymodel.py``.

``cli`` reads the command line, ``target`` loads the model file, ``demo`` has what it leaves open, ``survey`` measures
in order and fills a Report, ``arms`` builds what is timed, ``racing`` races it, ``progress`` and ``outputs`` show it.
"""
