"""Verify: proof that every build of a chain does the same thing: the same draws through each, compared by contract.

``replay`` runs both builds on the same draws and ``material``; ``check`` of ``contracts`` says whether two results are
as equal as promised.
"""
