"""In place of PaddlePaddle: parameter servers serve for ever, trainers each reach all of them."""

import os

from meet import reach, serve

port = int(os.environ["PADDLE_PORT"])
if os.environ["TRAINING_ROLE"] == "PSERVER":
    print("server", os.environ["PADDLE_CURRENT_ENDPOINT_INDEX"], flush=True)
    serve(port)
servers = os.environ["VC_PSERVER_HOSTS"].split(",")
for server in servers:
    reach(server, port, 1)
print("trainer", os.environ["PADDLE_TRAINER_ID"], "reached", len(servers), "servers")
