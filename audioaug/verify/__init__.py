"""Verify: proof that every build of a chain does the same thing: the same draws through each, compared by contract.

* ``material``: the clips that all builds process, and the arguments of each op.
* ``replay``: ``replay(chain, clips, ...)`` runs both builds on the same draws; ``verify_op`` does it for all material.
* ``contracts``: ``check(contract, dry, reference, built)`` says whether two results are as equal as promised.
* ``noise``: what ``check`` does where the noise itself differs: levels, spectrum, whiteness, independence.
* ``python -m audioaug.verify``: all ops, all engines, as a table.
"""
