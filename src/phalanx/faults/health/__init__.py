"""The health of nodes by what fails on them: what is to blame, and which nodes take no work for a while."""
