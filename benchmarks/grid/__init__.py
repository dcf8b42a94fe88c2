"""What `regret.py` and `cost.py` share: problems, methods, measures, and cells that run in processes of their own."""
