// 200 keys with the client's own partitioner: go run . franz-go|sarama|kafka-go|kafka-go-hash BROKERS TOPIC
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, brokers, topic := os.Args[1], os.Args[2], os.Args[3]
	send := map[string]func(brokers, topic string, keys []string) error{
		"franz-go": franz, "sarama": withSarama,
		"kafka-go":      func(b, t string, k []string) error { return segmentio(b, t, k, nil) },
		"kafka-go-hash": func(b, t string, k []string) error { return segmentio(b, t, k, &kafka.Hash{}) },
	}[client]
	var keys []string
	for n := range 200 {
		keys = append(keys, fmt.Sprintf("key-%d", n))
	}
	if err := send(brokers, topic, keys); err != nil {
		log.Fatal(err)
	}
}

func franz(brokers, topic string, keys []string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	for _, key := range keys {
		if err := client.ProduceSync(context.Background(), &kgo.Record{Key: []byte(key), Value: []byte("{}")}).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

func withSarama(brokers, topic string, keys []string) error {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer([]string{brokers}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, key := range keys {
		message := sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(key), Value: sarama.StringEncoder("{}")}
		if _, _, err := producer.SendMessage(&message); err != nil {
			return err
		}
	}
	return nil
}

func segmentio(brokers, topic string, keys []string, balancer kafka.Balancer) error {
	writer := kafka.Writer{Addr: kafka.TCP(brokers), Topic: topic, Balancer: balancer}
	defer writer.Close()
	var messages []kafka.Message
	for _, key := range keys {
		messages = append(messages, kafka.Message{Key: []byte(key), Value: []byte("{}")})
	}
	return writer.WriteMessages(context.Background(), messages...)
}
