"""The zoo: small tasks with known answers, on which every architecture trains, and the harness that runs them all."""
