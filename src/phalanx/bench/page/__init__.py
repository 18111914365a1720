"""How fast the page is: a real server with a large cluster, and a real Chromium that is driven over its protocol."""
