"""A parameter-server job for tests, as programs of their own: linear regression on 10,000 records in 200 tasks."""

RECORDS, PER_TASK, EPOCHS = 10_000, 50, 3

# Listens on HOST:PORT. Holds a part of the weights. Empty after a start, until a trainer initialises or loads it.
SERVER = """
import json, pathlib, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
state, lock = {}, Lock()  # weights, and how often each task of each epoch was applied

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with lock:
            self.answer(getattr(self, self.path.strip("/"))(body))

    def answer(self, found):
        text = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def pull(self, body):
        return state

    def start(self, body):  # the first of several trainers does it
        if body["always"] or not state:
            state.clear()
            source = body["file"]
            state.update(json.loads(pathlib.Path(source).read_text()) if source else
                         {"weights": [0.0] * body["size"], "applied": {}})
        return {}

    def push(self, body):
        if not state:
            return {"empty": True}
        state["weights"] = [w + d for w, d in zip(state["weights"], body["delta"])]
        state["applied"][body["task"]] = state["applied"].get(body["task"], 0) + 1
        return {}

    def save(self, body):
        if not state:
            return {"empty": True}
        pathlib.Path(body["file"]).write_text(json.dumps(state))
        return {}

    def log_message(self, *arguments):
        pass

host, _, port = sys.argv[1].rpartition(":")
ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
"""

# Arguments: servers as JSON, commit or plain, pause after a task (seconds), records of a task (50 if not given).
# Prints [epoch, task] before a task's gradients are pushed, ["done", epoch, task] when it is counted, ["results",
# epoch, tasks] of the epoch before when it begins another one and at the end, and then ["servers", their states].
TRAINER = f"""
import http.client, json, os, pathlib, sys, time
import numpy as np
import lockstep_train as lt
servers, commit, pause_s = json.loads(sys.argv[1]), sys.argv[2] == "commit", float(sys.argv[3])
per_task = int(sys.argv[4]) if len(sys.argv) > 4 else {PER_TASK}
HALF = 4
features = np.sin(np.outer(np.arange(1, {RECORDS + 1}), np.arange(1, 2 * HALF + 1)) * 0.7)
targets = features @ np.arange(1.0, 2 * HALF + 1) + 0.1 * np.sin(np.arange({RECORDS}) * 13.7)

class Gone(Exception):
    pass

connections = [http.client.HTTPConnection(server, timeout=10) for server in servers]
for connection in connections:
    connection.auto_open = True

def ask(number, what, **body):
    try:
        connections[number].request("POST", "/" + what, json.dumps(body))
        found = json.loads(connections[number].getresponse().read())
    except (OSError, http.client.HTTPException) as error:
        connections[number].close()
        raise Gone(f"server {{number}}: {{error!r}}") from error
    if found.get("empty") or (what == "pull" and not found):
        raise Gone(f"server {{number}} is empty")
    return found

def insist(number, what, **body):
    while True:
        try:
            return ask(number, what, **body)
        except Gone:
            time.sleep(0.1)

def start(always):
    saved = job.latest()
    for number in range(len(servers)):
        file = os.path.join(saved.path, f"server-{{number}}") if saved else ""
        insist(number, "start", file=file, size=HALF, always=always)
    return saved.step if saved else None

def write(path):
    os.makedirs(path)
    for number in range(len(servers)):
        ask(number, "save", file=os.path.join(path, f"server-{{number}}"))

def tell_results(epoch):
    try:
        found = [result.task for result in queue.results(epoch)]
    except lt.OtherEpoch:
        return
    print(json.dumps(["results", epoch, found]), flush=True)

def train(task):
    records = np.array(list(task.records(skip=0)))
    print(json.dumps([task.epoch, task.number]), flush=True)
    for start in range(0, len(records), {PER_TASK}):
        weights = [w for number in range(len(servers)) for w in ask(number, "pull")["weights"]]
        push(task, records[start:start + {PER_TASK}], np.array(weights))
    time.sleep(pause_s)

def push(task, records, weights):
    x, y = features[records], targets[records]
    delta = -0.05 * x.T @ (x @ weights - y) / len(records)
    for number in range(len(servers)):
        part = delta[number * HALF:(number + 1) * HALF].tolist()
        ask(number, "push", delta=part, task=f"{{task.epoch}}-{{task.number}}")

job = lt.join()
job.follow()
queue = lt.Tasks.range({RECORDS}, per_task, seed=11, commit=commit)
step, epoch = start(always=commit), 0
if step is None:
    step = 0
    if commit:
        job.save(0, write)  # before the first task: without a checkpoint there is nothing to go back to
for task in queue.epochs({EPOCHS}):
    if task.epoch > epoch:
        tell_results(task.epoch - 1)
    epoch = task.epoch
    try:
        train(task)
        step += 1
        if task.done(result=f"member {{os.environ['LOCKSTEP_MEMBER']}}"):
            print(json.dumps(["done", task.epoch, task.number]), flush=True)
        elif commit:
            sys.exit("the weights have a task that does not count")
        if step % 10 == 0:
            job.save(step, write)
    except Gone as gone:
        if commit:
            sys.exit(str(gone))  # the next process starts all servers from one checkpoint
        if not task.ended:
            task.give_back()
        start(always=False)
if commit:
    job.save(step + 1, write)
tell_results({EPOCHS - 1})
print(json.dumps(["servers", [insist(number, "pull") for number in range(len(servers))]]), flush=True)
"""
