"""A bad night in forty seconds: real processes, a real daemon, simulated GPUs."""
