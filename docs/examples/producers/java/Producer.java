import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Example to copy: a producer in Java. It sends made-up likes and unlikes to Tally's Kafka topic,
 * with the key, partition and order that docs/producers.md asks for.
 * Run it as: java -cp 'JARS/*' Producer.java BROKERS TOPIC COUNT. Tried with kafka-clients 4.3.1.
 */
public class Producer {
    public static void main(String[] args) throws Exception {
        var config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("client.id", "likes-java");
        config.put("acks", "all");
        config.put("enable.idempotence", "true"); // retries keep the order
        // The default partitioner is murmur2 of the key: set no other one.
        var failed = new Exception[1];
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < Integer.parseInt(args[2]); n++) {
                String post = "post-ü-" + n % 97, user = "user-" + n % 211, action = n / 211 % 3 == 1 ? "unlike" : "like";
                String event = "{\"post_id\":\"%s\",\"user_id\":\"%s\",\"action\":\"%s\",\"ts\":%d}"
                    .formatted(post, user, action, 1_700_000_000_000L + n); // real ids need a JSON library
                producer.send(new ProducerRecord<>(args[1], post, event), (written, error) -> {
                    if (error != null) failed[0] = error;
                });
            }
        }
        if (failed[0] != null) throw failed[0];
    }
}
