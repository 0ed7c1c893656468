"""A cluster file with nearly every key."""

FULL = """\
backend: ssh
user: alice
python: .venv/bin/python
workdir: /data
gpus: 2
gpus_per_task: 1
ports: 3000
restarts: 3
hosts:
  - name: node0
    address: 10.0.0.1
    roles: {chief: 1, ps: 1}
  - name: node1
    user: bob
    python: /opt/python
    agent_python: python3.11
    gpus: 0
    roles: {evaluator: 1}
environment:
  OMP_NUM_THREADS: 2
  SWITCH: on
pass_environment: [API_TOKEN]
limits:
  start_secs: 30
  idle_secs: off
  lease_secs: 2.5
"""
