"""A parameter-server job for tests, as programs of their own: linear regression on 10,000 records in 200 tasks."""

RECORDS, PER_TASK, EPOCHS = 10_000, 50, 3

# Holds a part of the weights. Empty after a start, until a trainer initialises or loads it.
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

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

# Prints [epoch, task] before a task's gradients are pushed, and ["done", epoch, task] when it is counted.
TRAINER = f"""
import http.client, json, os, pathlib, sys, time
import numpy as np
import lockstep_train as lt
ports, commit, pause_s = json.loads(sys.argv[1]), sys.argv[2] == "commit", float(sys.argv[3])
HALF = 4
features = np.sin(np.outer(np.arange(1, {RECORDS + 1}), np.arange(1, 2 * HALF + 1)) * 0.7)
targets = features @ np.arange(1.0, 2 * HALF + 1) + 0.1 * np.sin(np.arange({RECORDS}) * 13.7)

class Gone(Exception):
    pass

connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=10) for port in ports]
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
    for number in range(len(ports)):
        file = os.path.join(saved.path, f"server-{{number}}") if saved else ""
        insist(number, "start", file=file, size=HALF, always=always)
    return saved.step if saved else None

def write(path):
    os.makedirs(path)
    for number in range(len(ports)):
        ask(number, "save", file=os.path.join(path, f"server-{{number}}"))

def train(task):
    records = np.array(list(task.records(skip=0)))
    weights = np.array([w for number in range(len(ports)) for w in ask(number, "pull")["weights"]])
    x, y = features[records], targets[records]
    delta = -0.05 * x.T @ (x @ weights - y) / len(records)
    print(json.dumps([task.epoch, task.number]), flush=True)
    for number in range(len(ports)):
        part = delta[number * HALF:(number + 1) * HALF].tolist()
        ask(number, "push", delta=part, task=f"{{task.epoch}}-{{task.number}}")
    time.sleep(pause_s)

job = lt.join()
job.follow()
queue = lt.Tasks.range({RECORDS}, {PER_TASK}, seed=11, commit=commit)
step = start(always=commit)
if step is None:
    step = 0
    if commit:
        job.save(0, write)  # before the first task: without a checkpoint there is nothing to go back to
for task in queue.epochs({EPOCHS}):
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
"""
