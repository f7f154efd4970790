"""The worker process: Procrastinate app, tasks, sweep, supervisor."""
