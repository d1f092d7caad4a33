// SPDX-License-Identifier: Apache-2.0

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * A released 4.x client with its defaults, but that it asks for routes every 3 s instead of 30. produce NAMESRV TOPIC THREADS PAUSE_MS sends until standard input ends;
 * consume NAMESRV TOPIC… reads. A line a message: "ok KEY BROKER", "fail KEY MILLIS cause", "got KEY".
 */
public final class Client4 {
    private static final PrintStream OUT = System.out;
    private static volatile boolean ending;

    public static void main(String[] args) throws Exception {
        if (args[0].equals("produce")) {
            produce(args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]));
        } else {
            consume(args);
        }
        System.exit(0);
    }

    private static void produce(String names, String topic, int threads, int pause) throws Exception {
        DefaultMQProducer p = new DefaultMQProducer("rolling4-producers");
        p.setNamesrvAddr(names);
        p.setPollNameServerInterval(3000);
        p.start();
        AtomicLong next = new AtomicLong();
        Thread[] all = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            all[i] = new Thread(() -> {
                while (!ending) {
                    String key = "v4-" + next.getAndIncrement();
                    try {
                        SendResult r = p.send(new Message(topic, key.getBytes(StandardCharsets.UTF_8)));
                        if (r.getSendStatus() != SendStatus.SEND_OK) {
                            throw new IllegalStateException(r.toString());
                        }
                        OUT.println("ok " + key + " " + r.getMessageQueue().getBrokerName());
                        pause(pause);
                    } catch (Exception e) {
                        OUT.println("fail " + key + " " + System.currentTimeMillis() + " " + line(e));
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
        p.shutdown();
        OUT.println("end");
    }

    private static void consume(String[] args) throws Exception {
        DefaultMQPushConsumer c = new DefaultMQPushConsumer("rolling4-consumers");
        c.setNamesrvAddr(args[1]);
        c.setPollNameServerInterval(3000);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        for (int i = 2; i < args.length; i++) {
            c.subscribe(args[i], "*");
        }
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(m -> OUT.println("got " + new String(m.getBody(), StandardCharsets.UTF_8)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        while (System.in.read() >= 0) { }
        c.shutdown();
        OUT.println("end");
    }

    private static void pause(int millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static String line(Throwable e) {
        return String.valueOf(e).replaceAll("\\s+", " ");
    }
}
