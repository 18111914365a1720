"""Kubernetes objects, as far as scheduling reads them. Fields that are not named here are skipped while parsing."""
