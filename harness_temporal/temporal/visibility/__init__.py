"""What a person sees of agents' runs in the Temporal UI."""
