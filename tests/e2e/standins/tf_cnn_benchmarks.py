"""In place of TensorFlow's benchmark: a parameter server that serves for ever, and workers that each
send every server ten steps and end."""

import argparse

from meet import reach, serve

parser = argparse.ArgumentParser()
for name in ("job_name", "ps_hosts", "worker_hosts"):
    parser.add_argument(f"--{name}", required=True)
parser.add_argument("--task_index", type=int, required=True)
asked, _ = parser.parse_known_args()

servers = [host for host in asked.ps_hosts.split(",") if host]
workers = [host for host in asked.worker_hosts.split(",") if host]
mine = (servers if asked.job_name == "ps" else workers)[asked.task_index]
print(
    f"{asked.job_name} {asked.task_index} of {len(servers)} servers, {len(workers)} workers: {mine}"
)
if asked.job_name == "ps":
    serve(int(mine.split(":")[1]))
for _ in range(10):
    for server in servers:
        host, port = server.split(":")
        reach(host, int(port), 1)
print("total images/sec: 320.00")
