"""What passes between the engine and everything around it: events, actions, the plan and its reasons."""
