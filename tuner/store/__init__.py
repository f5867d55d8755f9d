"""What is remembered: devices, stacks, problems, variants, studies, trials, measurements and winners.

``tuner.store.store`` has ``Store`` and ``default_url``; ``tuner.store.records`` the values that go in and come out, and
loads nothing heavy. SQLAlchemy and Alembic are imported in this package and nowhere else.
"""
