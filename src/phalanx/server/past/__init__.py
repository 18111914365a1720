"""The past: a journal that is not a server's own shown as one, and States of past moments."""
