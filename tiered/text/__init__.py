"""Values and text: what people type and what they read. Below the command line, the daemon and the jobs."""
