"""A seeded simulation of jobs: real deciders, on simulated hosts, links, clocks and kills."""
