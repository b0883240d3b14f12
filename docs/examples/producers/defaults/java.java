// 200 keys with the client's own partitioner: java -cp 'JARS/*' java.java BROKERS TOPIC
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

class Defaults {
    public static void main(String[] args) {
        var config = Map.<String, Object>of("bootstrap.servers", args[0]);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < 200; n++) producer.send(new ProducerRecord<>(args[1], "key-" + n, "{}"));
        }
    }
}
