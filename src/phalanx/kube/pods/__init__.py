"""What one pod asks for, and to which nodes it may go."""
