"""Studies: the paper's experiments, and what they are compared with."""
