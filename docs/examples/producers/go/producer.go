// Example to copy: a producer in Go. It sends made-up likes and unlikes to Tally's Kafka topic,
// with the key, partition and order that docs/producers.md asks for.
// Run it as: go run producer.go BROKERS TOPIC COUNT. Tried with franz-go.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

type event struct {
	PostID string `json:"post_id"`
	UserID string `json:"user_id"`
	Action string `json:"action"`
	TS     int64  `json:"ts"`
}

func main() {
	count, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.ClientID("likes-go"),
		kgo.DefaultProduceTopic(os.Args[2]),
		// murmur2, as Java has it, which is the default; idempotence and acks=all are, too.
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.RequiredAcks(kgo.AllISRAcks()),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for n := range count {
		e := event{fmt.Sprintf("post-ü-%d", n%97), fmt.Sprintf("user-%d", n%211), "like", 1_700_000_000_000 + int64(n)}
		if n/211%3 == 1 {
			e.Action = "unlike"
		}
		value, err := json.Marshal(e)
		if err != nil {
			log.Fatal(err)
		}
		client.Produce(context.Background(), &kgo.Record{Key: []byte(e.PostID), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	if err := client.Flush(context.Background()); err != nil {
		log.Fatal(err)
	}
}
