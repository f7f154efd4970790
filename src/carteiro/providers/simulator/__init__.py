"""A separate process that speaks the providers' real wire formats."""
