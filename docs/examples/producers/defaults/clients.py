"""200 keys with the client's own partitioner: python clients.py confluent|kafka-python|aiokafka BROKERS TOPIC."""
import asyncio
import sys

client, brokers, topic = sys.argv[1:]
keys = [f"key-{n}".encode() for n in range(200)]

if client == "confluent":
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": brokers})
    for key in keys:
        producer.produce(topic, key=key, value=b"{}")
    producer.flush()
elif client == "kafka-python":
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=brokers)
    for key in keys:
        producer.send(topic, key=key, value=b"{}")
    producer.close()
else:
    from aiokafka import AIOKafkaProducer

    async def main():
        producer = AIOKafkaProducer(bootstrap_servers=brokers)
        await producer.start()
        for key in keys:
            await producer.send_and_wait(topic, key=key, value=b"{}")
        await producer.stop()

    asyncio.run(main())
