"""Operators of the user's own: a Python file declares one, and everything that is done with the shipped ones works.

``declaration`` is what the file writes; ``files`` finds, loads and registers it; ``declared`` makes an ``Operator`` of
it; ``shapes``, ``small_shapes``, ``inputs``, ``bound`` and ``wrong_answers`` are what the check needs.
"""
