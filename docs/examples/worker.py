"""An agent that pulls its work. REACH_URL, REACH_TOKEN and an agent id are all it needs."""
import json, os, signal, sys, threading, time, urllib.error, urllib.request, uuid

HUB, AGENT = os.environ["REACH_URL"], sys.argv[1]
HEADERS = {"Authorization": "Bearer " + os.environ["REACH_TOKEN"], "Content-Type": "application/json"}
leaving, held = threading.Event(), {}  # held: reach_id -> attempt of what is being worked on

def call(path, body):
    """Asks until there is an answer: a hub that is away or busy comes back, and a report said twice is harmless."""
    while True:
        try:
            request = urllib.request.Request(HUB + path, json.dumps(body).encode(), HEADERS)
            with urllib.request.urlopen(request, timeout=90) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            if refusal.code < 500 and refusal.code != 429:
                return refusal.code, json.load(refusal)
        except OSError:
            if leaving.is_set() and not held:
                sys.exit("left without a goodbye: the hub is away")  # silence says the same, later
        time.sleep(1)

def work(task):
    """Yours. What raises ValueError or KeyError no retry can mend; anything else one may."""
    return {"words": len(task["payload"]["text"].split())}

def report(op, task, **more):
    lease = {"agent_id": AGENT, "incarnation": ME, "attempt": task["attempt"], "lease": task["lease"]}
    return call(f"/v1/tasks/{task['reach_id']}/{op}", lease | more)[0]

def beat():
    """Says that it lives, and hears what changed."""
    while True:
        listed = [{"reach_id": task, "attempt": attempt} for task, attempt in dict(held).items()]
        status, told = call(f"/v1/agents/{AGENT}/heartbeat", {"incarnation": ME, "held": listed})
        if status != 200 or told["drain"]:  # another process has this id, or an operator wants it gone
            leaving.set()
        for gone in told.get("cancelled", []) + told.get("lost", []):
            held.pop(gone["reach_id"], None)  # nobody waits for this any more: a long job looks here and stops
        time.sleep(INTERVAL)

def leave(*_):
    """SIGTERM, as a deploy sends it: no new work, and what runs may finish for 30 s before it goes to another."""
    leaving.set()
    order = {"mode": "finish", "grace_ms": 30_000, "reason": "SIGTERM"}
    threading.Thread(target=call, args=(f"/v1/agents/{AGENT}/drain", order), daemon=True).start()

status, me = call("/v1/agents", {
    "agent_id": AGENT, "instance": uuid.uuid4().hex, "transport": {"kind": "pull"}, "max_concurrency": 1,
    "capabilities": [{"capability": "text.words", "description": "Counts the words of a text"}]})
if status != 200:
    sys.exit(f"not registered: {me['code']}: {me['detail']} {me['next']}")
ME, INTERVAL = me["incarnation"], me["heartbeat_interval_ms"] / 1000
threading.Thread(target=beat, daemon=True).start()
signal.signal(signal.SIGTERM, leave)
while not leaving.is_set():
    status, claimed = call(f"/v1/agents/{AGENT}/claim", {"incarnation": ME, "max": 1, "wait_ms": 2000})
    if status != 200:
        break  # draining, or another process has this id
    # All at once, whatever "max" is: one that waits here for its turn must not run out of its reach timeout.
    begun = [task for task in claimed["tasks"] if report("ack", task) == 200]  # never start without an accepted ack
    held.update((task["reach_id"], task["attempt"]) for task in begun)
    for task in begun:
        if task["reach_id"] not in held:
            continue  # called off meanwhile, or handed to another
        try:
            report("complete", task, result=work(task))
        except Exception as error:
            told = {"code": type(error).__name__, "message": str(error)}
            report("fail", task, error=told, retryable=not isinstance(error, (ValueError, KeyError)))
        held.pop(task["reach_id"], None)
call(f"/v1/agents/{AGENT}/offline", {"incarnation": ME})
