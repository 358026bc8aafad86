"""A program around the official Python SDK that the conformance driver steers (protocol: ../README.md)."""

import argparse
import json
import os
import queue
import sys
import threading
import time

from rocketmq import (ClientConfiguration, ConsumeResult, Credentials, FilterExpression, Message, MessageListener,
                      Producer, PushConsumer, SimpleConsumer)

OUT = threading.Lock()


def say(**event):
    event["t"] = int(time.time() * 1000)
    with OUT:
        print(json.dumps(event), flush=True)


def body_of(n):
    return f"message {n} ".encode().ljust(256, b".")


def build(topic, n):
    message = Message()
    message.topic, message.body, message.tag, message.keys = topic, body_of(n), f"tag-{n % 3}", f"key-{n}"
    message.add_property("n", str(n))
    message.add_property("sdk", "python")
    return message


def report(via, message):
    n = int(message.properties.get("n", "-1"))
    good = (message.body == body_of(n) and message.tag == f"tag-{n % 3}" and list(message.keys) == [f"key-{n}"]
            and message.properties.get("sdk") == "python" and not message.corrupted)
    say(e="got", via=via, n=n, id=message.message_id, attempt=message.delivery_attempt, good=good)


class Listener(MessageListener):
    def consume(self, message):
        report("push", message)
        return ConsumeResult.SUCCESS


def produce(producer, topic, first, count, rate):
    start = time.monotonic()
    for i in range(count):
        if rate:
            time.sleep(max(0.0, start + i / rate - time.monotonic()))
        began = time.monotonic()
        try:
            receipt = producer.send(build(topic, first + i))
            say(e="sent", n=first + i, id=receipt.message_id, ms=int((time.monotonic() - began) * 1000))
        except Exception as error:  # noqa: BLE001 - whatever the SDK raises is the finding
            say(e="failed", n=first + i, error=f"{type(error).__name__}: {error}")
    say(e="produced")


def receive(consumer, stop):
    while not stop.is_set():
        try:
            for message in consumer.receive(32, 20) or []:
                report("simple", message)
                consumer.ack(message)
        except Exception as error:  # noqa: BLE001
            say(e="error", where="receive", error=f"{type(error).__name__}: {error}")
            stop.wait(0.2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoints", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--simple-group", required=True)
    parser.add_argument("--push-group", required=True)
    args = parser.parse_args()

    config = ClientConfiguration(args.endpoints, Credentials())
    producer = Producer(config, (args.topic,))
    producer.startup()
    simple = SimpleConsumer(config, args.simple_group, {args.topic: FilterExpression()}, 5)
    simple.startup()
    push = PushConsumer(config, args.push_group, Listener(), {args.topic: FilterExpression()})
    push.startup()
    stop, jobs = threading.Event(), queue.Queue()
    threading.Thread(target=receive, args=(simple, stop), daemon=True).start()

    def work():
        while True:
            produce(producer, args.topic, *jobs.get())

    threading.Thread(target=work, daemon=True).start()
    say(e="ready")
    for line in sys.stdin:
        words = line.split()
        if words[0] == "produce":
            jobs.put((int(words[1]), int(words[2]), float(words[3])))
        elif words[0] == "quit":
            break
    say(e="bye")
    os._exit(0)  # the SDK's background threads do not all end by themselves


if __name__ == "__main__":
    main()
