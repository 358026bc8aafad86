"""The demo of `./dev demo`: three nodes, the official Python SDK, the leader killed in the middle. Exits 1 when anything acked is lost."""

import sys
import time

from cluster import Client, Cluster, Failed

RATE = 100
SECONDS = 15


def step(text):
    print(f"demo: {text}", flush=True)


def main():
    step("starting three nodes on loopback")
    cluster = Cluster(1)
    client = None
    try:
        cluster.run("topic", "create", "demo")
        step(f"nodes are up at {cluster.endpoints}, node {cluster.leader()} leads; starting the official Python SDK (producer, simple and push consumer)")
        client = Client("python", cluster, "demo")
        client.ready()
        step(f"sending {RATE} messages a second for {SECONDS} s")
        client.produce(0, RATE * SECONDS, RATE)
        time.sleep(SECONDS / 3)
        leader = cluster.leader()
        step(f"kill -9 of node {leader}, the leader")
        cluster.run("playground", "kill", str(leader))
        step(f"node {cluster.leader()} leads now")
        time.sleep(SECONDS / 4)
        step(f"starting node {leader} again")
        cluster.run("playground", "start", str(leader))
        client.produced(60)
        client.delivered(60)
        client.check()
        again = {via: len(client.got[via]) - len({event["id"] for event in client.got[via]}) for via in client.vias}
        step(f"acked {len(client.sent)}, failed calls {len(client.failed)}, longest gap between two acks {client.gap_ms()} ms")
        step(f"received by the simple consumer {len(client.got['simple'])}, by the push consumer {len(client.got['push'])}; "
             f"redelivered {again['simple']} and {again['push']}, stored twice {client.stored_twice()}")
        step("lost 0: nothing lost")
        return 0
    except Failed as error:
        step(f"FAILED: {error}")
        print(cluster.logs(), file=sys.stderr)
        return 1
    finally:
        if client:
            client.close()
        cluster.close()


if __name__ == "__main__":
    sys.exit(main())
