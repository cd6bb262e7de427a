"""What the gateway knows: clients, positions, minimums, rights, the archive, and what brokers were asked."""
