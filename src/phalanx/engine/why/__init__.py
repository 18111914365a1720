"""Why a job is pending, when it would start, and what would start it now."""
