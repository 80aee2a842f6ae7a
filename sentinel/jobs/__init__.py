"""Jobs: the register, the supervisor, their output, and the way to ask them."""
