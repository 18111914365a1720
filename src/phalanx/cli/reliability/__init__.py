"""`phalanx reliability`: what failures cost, and what to do about them."""
