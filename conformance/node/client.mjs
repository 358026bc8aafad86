// A program around the official Node SDK that the conformance driver steers (protocol: ../README.md).
// The published SDK takes one address as its endpoint, so it gets the first of the list.
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import sdk from 'rocketmq-client-nodejs';

const { Producer, SimpleConsumer, PushConsumer, ConsumeResult } = sdk;
const { values: args } = parseArgs({
  options: {
    endpoints: { type: 'string' }, topic: { type: 'string' },
    'simple-group': { type: 'string' }, 'push-group': { type: 'string' },
  },
});

const say = event => process.stdout.write(JSON.stringify({ ...event, t: Date.now() }) + '\n');
const bodyOf = n => `message ${n} `.padEnd(256, '.');
const quiet = { info() {}, warn() {}, debug() {}, error() {} };
const common = { endpoints: args.endpoints.split(';')[0], namespace: '', sslEnabled: false, logger: quiet };

function report(via, view) {
  const n = Number(view.properties.get('n') ?? -1);
  const good = view.body.toString() === bodyOf(n) && view.tag === `tag-${n % 3}` && !view.corrupted
    && view.keys.length === 1 && view.keys[0] === `key-${n}` && view.properties.get('sdk') === 'node';
  say({ e: 'got', via, n, id: view.messageId, attempt: view.deliveryAttempt ?? 0, good });
}

const pause = ms => new Promise(done => setTimeout(done, ms));

async function produce(producer, first, count, rate) {
  const start = performance.now();
  for (let i = 0; i < count; i++) {
    const n = first + i;
    if (rate > 0) await pause(Math.max(0, start + i * 1000 / rate - performance.now()));
    const began = performance.now();
    try {
      const receipt = await producer.send({
        topic: args.topic, body: Buffer.from(bodyOf(n)), tag: `tag-${n % 3}`, keys: [`key-${n}`],
        properties: new Map([['n', String(n)], ['sdk', 'node']]),
      });
      say({ e: 'sent', n, id: receipt.messageId, ms: Math.round(performance.now() - began) });
    } catch (error) {
      say({ e: 'failed', n, error: String(error) });
    }
  }
  say({ e: 'produced' });
}

async function receive(consumer) {
  for (;;) {
    try {
      for (const view of await consumer.receive(32, 20000)) {
        report('simple', view);
        consumer.ack(view).catch(error => say({ e: 'error', where: 'ack', error: String(error) }));
      }
    } catch (error) {
      say({ e: 'error', where: 'receive', error: String(error) });
      await pause(200);
    }
  }
}

const subscriptions = new Map([[args.topic, '*']]);
const producer = new Producer({ ...common, topics: [args.topic] });
await producer.startup();
const simple = new SimpleConsumer({ ...common, consumerGroup: args['simple-group'], subscriptions, awaitDuration: 5000 });
await simple.startup();
const push = new PushConsumer({
  ...common, consumerGroup: args['push-group'], subscriptions,
  messageListener: { async consume(view) { report('push', view); return ConsumeResult.SUCCESS; } },
});
await push.startup();
receive(simple);
say({ e: 'ready' });

let jobs = Promise.resolve();
for await (const line of createInterface({ input: process.stdin })) {
  const [word, ...numbers] = line.trim().split(/\s+/);
  if (word === 'produce') jobs = jobs.then(() => produce(producer, ...numbers.map(Number)));
  if (word === 'quit') break;
}
say({ e: 'bye' });
process.exit(0);
