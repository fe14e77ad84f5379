"""The zoo: small tasks with known answers that every architecture trains on, and the harness that runs them."""
