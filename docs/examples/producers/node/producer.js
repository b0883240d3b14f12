// Example to copy: a producer in Node. It sends made-up likes and unlikes to Tally's Kafka topic,
// with the key, partition and order that docs/producers.md asks for.
// Run it as: node producer.js BROKERS TOPIC COUNT. Tried with kafkajs 2.2.4.
import kafkajs from "kafkajs";

const [brokers, topic, count] = process.argv.slice(2);
const kafka = new kafkajs.Kafka({ clientId: "likes-node", brokers: brokers.split(","), logLevel: kafkajs.logLevel.ERROR });
const producer = kafka.producer({
  // murmur2, as Java has it. LegacyPartitioner, the default before 2.0, is another.
  createPartitioner: kafkajs.Partitioners.DefaultPartitioner,
  idempotent: true, // retries keep the order
  maxInFlightRequests: 1,
});

await producer.connect();
for (let n = 0; n < count; ) {
  const messages = [];
  for (; n < count && messages.length < 500; n++) {
    const event = {
      post_id: `post-ü-${n % 97}`,
      user_id: `user-${n % 211}`,
      action: Math.floor(n / 211) % 3 === 1 ? "unlike" : "like",
      ts: 1_700_000_000_000 + n,
    };
    messages.push({ key: event.post_id, value: JSON.stringify(event) });
  }
  // Wait for each batch: two at once may overtake each other.
  await producer.send({ topic, messages, acks: -1 });
}
await producer.disconnect();
