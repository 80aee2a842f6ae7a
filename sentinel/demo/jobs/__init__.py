"""The demo's jobs: small real programs, standard library only, that also serve as loads for tests."""
