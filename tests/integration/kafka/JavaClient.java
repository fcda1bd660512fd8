// The Java client against a cluster: prints a line for each thing that held, and ends with an error at the first that did not.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class JavaClient {
    static String bootstrap;
    static final int COUNT = 200;

    static void held(String what) {
        System.out.println("held " + what);
    }

    static void check(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    static Properties settings(Map<String, Object> more) {
        Properties made = new Properties();
        made.put("bootstrap.servers", bootstrap);
        made.putAll(more);
        return made;
    }

    static List<RecordMetadata> produce(String topic, Map<String, Object> more) throws Exception {
        List<RecordMetadata> stored = new ArrayList<>();
        try (Producer<String, String> producer =
                new KafkaProducer<>(settings(more), new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> futures = new ArrayList<>();
            for (int number = 0; number < COUNT; number++) {
                futures.add(producer.send(new ProducerRecord<>(topic, null, 1000L + number, "k" + number, "v" + number)));
            }
            for (Future<RecordMetadata> future : futures) {
                stored.add(future.get());
            }
        }
        return stored;
    }

    static KafkaConsumer<String, String> consumer(String group, Map<String, Object> more) {
        Map<String, Object> all = new HashMap<>(Map.of(
                "group.id", group,
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false",
                "session.timeout.ms", "10000",
                "heartbeat.interval.ms", "100"));
        all.putAll(more);
        return new KafkaConsumer<>(settings(all), new StringDeserializer(), new StringDeserializer());
    }

    static List<String> read(KafkaConsumer<String, String> consumer, int count) {
        List<String> found = new ArrayList<>();
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (found.size() < count && System.nanoTime() < deadline) {
            for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(100))) {
                found.add(one.value());
            }
        }
        return found;
    }

    static void until(BooleanSupplier condition, String what, Collection<KafkaConsumer<String, String>> polled) {
        long deadline = System.nanoTime() + 40_000_000_000L;
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() < deadline, "waited in vain for " + what);
            for (KafkaConsumer<String, String> one : polled) {
                one.poll(Duration.ofMillis(50));
            }
        }
    }

    static Throwable failure(Future<?> future) throws InterruptedException {
        try {
            future.get();
            return null;
        } catch (ExecutionException error) {
            return error.getCause();
        }
    }

    static void create(Admin admin, String topic, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(Map.of("headgate.linger.ms", "5"))))
                .all().get();
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        String name = arguments[1];
        try (Admin admin = Admin.create(settings(Map.of()))) {
            administration(admin, name + "-admin");
            for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
                codec(admin, name + "-" + codec, codec);
            }
            positions(admin, name + "-positions");
            resuming(admin, name + "-resume");
            rebalance(admin, name + "-eager", "org.apache.kafka.clients.consumer.RangeAssignor");
            rebalance(admin, name + "-cooperative", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
            staticMember(admin, name + "-static");
            groups(admin, name + "-groups");
            transactions(name);
        }
    }

    static void administration(Admin admin, String topic) throws Exception {
        create(admin, topic, 3);
        check(admin.listTopics().names().get().contains(topic), "listed");
        TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        check(described.partitions().size() == 3, "partitions");
        check(admin.describeCluster().nodes().get().size() == 3, "nodes");
        check(failure(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(9))).all())
                instanceof InvalidPartitionsException, "partitions are immutable");
        check(failure(admin.createTopics(List.of(new NewTopic(topic + "-c", 1, (short) 1)
                .configs(Map.of("cleanup.policy", "compact")))).all())
                instanceof InvalidConfigurationException, "compaction is refused");
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        admin.incrementalAlterConfigs(Map.of(resource,
                List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "60000"), AlterConfigOp.OpType.SET)))).all().get();
        Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        check(config.get("retention.ms").value().equals("60000"), "altered");
        admin.deleteTopics(List.of(topic)).all().get();
        check(failure(admin.deleteTopics(List.of(topic)).all()) instanceof UnknownTopicOrPartitionException, "gone");
        held("administration");
    }

    static void codec(Admin admin, String topic, String codec) throws Exception {
        create(admin, topic, 1);
        List<RecordMetadata> stored = produce(topic, Map.of("compression.type", codec, "enable.idempotence", "true"));
        check(stored.get(COUNT - 1).offset() == COUNT - 1, "offsets are dense");
        try (KafkaConsumer<String, String> consumer = consumer(topic, Map.of())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            consumer.seekToBeginning(List.of(new TopicPartition(topic, 0)));
            List<String> found = read(consumer, COUNT);
            check(found.size() == COUNT && found.get(COUNT - 1).equals("v" + (COUNT - 1)), "read as written");
        }
        held("codec " + codec);
    }

    static void positions(Admin admin, String topic) throws Exception {
        create(admin, topic, 1);
        produce(topic, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(topic, Map.of())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 150);
            check(read(consumer, 1).get(0).equals("v150"), "seek");
            check(consumer.offsetsForTimes(Map.of(partition, 1100L)).get(partition).offset() == 100, "by time");
            check(consumer.endOffsets(List.of(partition)).get(partition) == COUNT, "end");
            var largest = admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition).get();
            check(largest.offset() == COUNT - 1 && largest.timestamp() == 1000L + COUNT - 1, "largest timestamp");
            var local = admin.listOffsets(Map.of(partition, OffsetSpec.earliestLocal())).partitionResult(partition).get();
            check(local.offset() == 0, "earliest local");
            var tiered = admin.listOffsets(Map.of(partition, OffsetSpec.latestTiered())).partitionResult(partition).get();
            check(tiered.offset() == -1, "latest tiered");
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(120))).all().get();
            check(consumer.beginningOffsets(List.of(partition)).get(partition) == 120, "deleted");
            consumer.seek(partition, 3);
            check(read(consumer, 1).get(0).equals("v120"), "reset to the beginning");
        }
        held("positions");
    }

    static void resuming(Admin admin, String topic) throws Exception {
        create(admin, topic, 1);
        produce(topic, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(topic, Map.of())) {
            consumer.subscribe(List.of(topic));
            read(consumer, 1);
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(77, "note")));
        }
        try (KafkaConsumer<String, String> consumer = consumer(topic, Map.of())) {
            consumer.subscribe(List.of(topic));
            check(read(consumer, 1).get(0).equals("v77"), "resumed");
            check(consumer.committed(Collections.singleton(partition)).get(partition).metadata().equals("note"), "note");
        }
        held("commit and resume");
    }

    static void rebalance(Admin admin, String topic, String assignor) throws Exception {
        create(admin, topic, 4);
        Map<String, Object> more = Map.of("partition.assignment.strategy", assignor);
        try (KafkaConsumer<String, String> first = consumer(topic, more)) {
            first.subscribe(List.of(topic));
            until(() -> first.assignment().size() == 4, "all", List.of(first));
            try (KafkaConsumer<String, String> second = consumer(topic, more)) {
                second.subscribe(List.of(topic));
                until(() -> first.assignment().size() == 2 && second.assignment().size() == 2, "half", List.of(first, second));
                check(Collections.disjoint(first.assignment(), second.assignment()), "nothing is shared");
            }
            until(() -> first.assignment().size() == 4, "all again", List.of(first));
        }
        held("rebalance " + assignor.substring(assignor.lastIndexOf('.') + 1));
    }

    static void staticMember(Admin admin, String topic) throws Exception {
        create(admin, topic, 2);
        try (KafkaConsumer<String, String> first = consumer(topic, Map.of("group.instance.id", "one"))) {
            first.subscribe(List.of(topic));
            until(() -> first.assignment().size() == 2, "all", List.of(first));
            int generation = first.groupMetadata().generationId();
            try (KafkaConsumer<String, String> again = consumer(topic, Map.of("group.instance.id", "one"))) {
                again.subscribe(List.of(topic));
                until(() -> again.assignment().size() == 2, "all again", List.of(again));
                check(again.groupMetadata().generationId() == generation, "no rebalance");
                try {
                    until(() -> false, "being fenced", List.of(first));
                } catch (FencedInstanceIdException expected) {
                    held("static members");
                }
            }
        }
    }

    static void groups(Admin admin, String topic) throws Exception {
        create(admin, topic, 2);
        produce(topic, Map.of());
        try (KafkaConsumer<String, String> consumer = consumer(topic, Map.of())) {
            consumer.subscribe(List.of(topic));
            read(consumer, COUNT);
            consumer.commitSync();
            check(admin.listGroups().all().get().stream().anyMatch(one -> one.groupId().equals(topic)), "listed");
            ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(topic)).all().get().get(topic);
            check(described.members().size() == 1, "one member");
            check(described.members().iterator().next().assignment().topicPartitions().size() == 2, "its partitions");
            check(failure(admin.deleteConsumerGroups(List.of(topic)).all()) instanceof GroupNotEmptyException, "in use");
        }
        long sum = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().values().stream()
                .mapToLong(OffsetAndMetadata::offset).sum();
        check(sum == COUNT, "offsets");
        admin.deleteConsumerGroups(List.of(topic)).all().get();
        check(admin.listGroups().all().get().stream().noneMatch(one -> one.groupId().equals(topic)), "deleted");
        held("groups");
    }

    static void transactions(String name) {
        try (Producer<String, String> producer = new KafkaProducer<>(
                settings(Map.of("transactional.id", name)), new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            throw new AssertionError("transactions are not supported");
        } catch (TransactionalIdAuthorizationException expected) {
            held("transactions are refused");
        }
    }
}
