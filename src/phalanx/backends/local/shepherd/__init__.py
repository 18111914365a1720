"""The process that looks after one attempt and outlives the server. It needs the standard library only."""
