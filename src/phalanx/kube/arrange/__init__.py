"""How gangs lie so that what their pods require of other pods holds."""
