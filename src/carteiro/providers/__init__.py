"""The provider contract, one folder per provider, and the simulator."""
