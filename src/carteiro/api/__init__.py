"""The HTTP door: controllers, schemas, authentication, problem details."""
