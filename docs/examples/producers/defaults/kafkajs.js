// 200 keys with the client's own partitioner: node kafkajs.js BROKERS TOPIC
import kafkajs from "kafkajs";

const [brokers, topic] = process.argv.slice(2);
const producer = new kafkajs.Kafka({ brokers: [brokers], logLevel: kafkajs.logLevel.ERROR }).producer();
await producer.connect();
await producer.send({ topic, messages: Array.from({ length: 200 }, (_, n) => ({ key: `key-${n}`, value: "{}" })) });
await producer.disconnect();
