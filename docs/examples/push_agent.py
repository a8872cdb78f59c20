"""An agent that is called: the hub posts each task to it. REACH_URL, REACH_TOKEN, an agent id and a port."""
import http.server, json, os, sys, threading, time, urllib.error, urllib.request

HUB, AGENT, PORT = os.environ["REACH_URL"], sys.argv[1], int(sys.argv[2])
HEADERS = {"Authorization": "Bearer " + os.environ["REACH_TOKEN"], "Content-Type": "application/json"}
cancelled = set()  # (reach_id, attempt): a long job looks here and stops

def call(path, body):
    request = urllib.request.Request(HUB + path, json.dumps(body).encode(), HEADERS)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)

def work(task):
    time.sleep(task["payload"].get("seconds", 0))  # yours
    return {"words": len(task["payload"]["text"].split())}

def later(task):
    lease = {"agent_id": AGENT, "incarnation": ME, "attempt": task["attempt"], "lease": task["lease"]}
    result = work(task)
    while (task["reach_id"], task["attempt"]) not in cancelled:
        try:
            return call(f"/v1/tasks/{task['reach_id']}/complete", lease | {"result": result})
        except urllib.error.HTTPError as refusal:
            if refusal.code < 500:
                return print("refused:", json.load(refusal)["code"], flush=True)  # fenced: this attempt is over
        except OSError:
            pass
        time.sleep(1)

class Door(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Reach-Event"] == "cancel":  # the task ended without us
            cancelled.add((body["reach_id"], body["attempt"]))
            print("cancelled:", body["reach_id"], flush=True)
            return self.answer(204)
        if "text" not in body["payload"]:
            return self.answer(422, {"error": {"code": "no-text", "message": "text is missing"}})  # no retry mends it
        if body["payload"].get("seconds"):
            threading.Thread(target=later, args=(body,)).start()
            return self.answer(202)  # acknowledged; the outcome comes as a report
        self.answer(200, work(body))  # acknowledgement and result in one

    def answer(self, status, body=None):
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Door)
declaration = {"agent_id": AGENT, "capabilities": [{"capability": "text.words"}], "max_concurrency": 4,
               "transport": {"kind": "http", "endpoint": f"http://127.0.0.1:{server.server_port}/reach"}}
ME = call("/v1/agents", declaration)["incarnation"]
threading.Thread(target=server.serve_forever, daemon=True).start()
while True:  # a push agent beats too
    time.sleep(5)
    try:
        call(f"/v1/agents/{AGENT}/heartbeat", {"incarnation": ME})
    except OSError:
        pass
