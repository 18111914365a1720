"""The process that talks to Ray. It outlives the server, and another goes on from where it was killed."""
