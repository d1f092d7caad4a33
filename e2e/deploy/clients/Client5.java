// SPDX-License-Identifier: Apache-2.0

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * A released 5.x client with its defaults. produce ENDPOINTS TOPIC THREADS PAUSE_MS sends until standard input ends;
 * consume ENDPOINTS TOPIC GROUP reads. A line a message, as Client4 writes them.
 */
public final class Client5 {
    private static final PrintStream OUT = System.out;
    private static volatile boolean ending;
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    public static void main(String[] args) throws Exception {
        ClientConfiguration config = ClientConfiguration.newBuilder().setEndpoints(args[1]).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(3)).build();
        if (args[0].equals("produce")) {
            produce(config, args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]));
        } else {
            consume(config, args[2], args[3]);
        }
        System.exit(0);
    }

    private static void produce(ClientConfiguration config, String topic, int threads, int pause) throws Exception {
        Producer p = PROVIDER.newProducerBuilder().setClientConfiguration(config).setTopics(topic).build();
        AtomicLong next = new AtomicLong();
        Thread[] all = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            all[i] = new Thread(() -> {
                while (!ending) {
                    String key = "v5-" + next.getAndIncrement();
                    try {
                        p.send(PROVIDER.newMessageBuilder().setTopic(topic)
                            .setBody(key.getBytes(StandardCharsets.UTF_8)).build());
                        OUT.println("ok " + key + " -");
                        pause(pause);
                    } catch (Throwable e) {
                        OUT.println("fail " + key + " " + System.currentTimeMillis() + " "
                            + String.valueOf(e).replaceAll("\\s+", " "));
                        pause(100);
                    }
                }
            });
            all[i].start();
        }
        while (System.in.read() >= 0) { }
        ending = true;
        for (Thread t : all) {
            t.join(5000);
        }
        OUT.println("end");
    }

    private static void pause(int millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static void consume(ClientConfiguration config, String topic, String group) throws Exception {
        PushConsumer c = PROVIDER.newPushConsumerBuilder().setClientConfiguration(config).setConsumerGroup(group)
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL))
            .setMessageListener(m -> {
                byte[] body = new byte[m.getBody().remaining()];
                m.getBody().get(body);
                OUT.println("got " + new String(body, StandardCharsets.UTF_8));
                return ConsumeResult.SUCCESS;
            }).build();
        while (System.in.read() >= 0) { }
        OUT.println("end");
    }
}
