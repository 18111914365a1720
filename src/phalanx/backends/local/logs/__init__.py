"""What tasks have printed: the files, the lines in them, and when each was written."""
