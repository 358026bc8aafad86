import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/** A program around the official Java SDK that the conformance driver steers (protocol: ../README.md). TLS is on, as by default. */
public final class Client {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    public static void main(String[] words) throws Exception {
        Map<String, String> args = new HashMap<>();
        for (int i = 0; i + 1 < words.length; i += 2) {
            args.put(words[i], words[i + 1]);
        }
        String topic = args.get("--topic");
        ClientConfiguration configuration = ClientConfiguration.newBuilder().setEndpoints(args.get("--endpoints")).build();
        Map<String, FilterExpression> all = Map.of(topic, FilterExpression.SUB_ALL);
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build();
        SimpleConsumer simple = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(args.get("--simple-group")).setAwaitDuration(Duration.ofSeconds(5)).setSubscriptionExpressions(all).build();
        PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(args.get("--push-group"))
            .setSubscriptionExpressions(all).setMessageListener(view -> {
                report("push", view);
                return ConsumeResult.SUCCESS;
            }).build();
        Thread receiver = new Thread(() -> receive(simple));
        receiver.setDaemon(true);
        receiver.start();
        say("\"e\":\"ready\"");

        ExecutorService jobs = Executors.newSingleThreadExecutor();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] command = line.trim().split("\\s+");
            if (command[0].equals("produce")) {
                jobs.submit(() -> produce(producer, topic, Integer.parseInt(command[1]), Integer.parseInt(command[2]), Double.parseDouble(command[3])));
            } else if (command[0].equals("quit")) {
                break;
            }
        }
        say("\"e\":\"bye\"");
        Runtime.getRuntime().halt(0);
    }

    private static void produce(Producer producer, String topic, int first, int count, double rate) {
        long start = System.nanoTime();
        for (int i = 0; i < count; i++) {
            int n = first + i;
            if (rate > 0) {
                pause((start + (long) (i / rate * 1e9) - System.nanoTime()) / 1_000_000);
            }
            Message message = PROVIDER.newMessageBuilder().setTopic(topic).setBody(bodyOf(n).getBytes(StandardCharsets.UTF_8))
                .setTag("tag-" + n % 3).setKeys("key-" + n).addProperty("n", "" + n).addProperty("sdk", "java").build();
            long began = System.nanoTime();
            try {
                String id = producer.send(message).getMessageId().toString();
                say("\"e\":\"sent\",\"n\":" + n + ",\"id\":" + quote(id) + ",\"ms\":" + (System.nanoTime() - began) / 1_000_000);
            } catch (Throwable error) {
                say("\"e\":\"failed\",\"n\":" + n + ",\"error\":" + quote(error.toString()));
            }
        }
        say("\"e\":\"produced\"");
    }

    private static void receive(SimpleConsumer consumer) {
        while (true) {
            try {
                for (MessageView view : consumer.receive(32, Duration.ofSeconds(20))) {
                    report("simple", view);
                    consumer.ackAsync(view).whenComplete((done, error) -> {
                        if (error != null) {
                            say("\"e\":\"error\",\"where\":\"ack\",\"error\":" + quote(error.toString()));
                        }
                    });
                }
            } catch (Throwable error) {
                say("\"e\":\"error\",\"where\":\"receive\",\"error\":" + quote(error.toString()));
                pause(200);
            }
        }
    }

    private static void report(String via, MessageView view) {
        int n = Integer.parseInt(view.getProperties().getOrDefault("n", "-1"));
        ByteBuffer buffer = view.getBody();
        byte[] body = new byte[buffer.remaining()];
        buffer.get(body);
        Collection<String> keys = view.getKeys();
        boolean good = new String(body, StandardCharsets.UTF_8).equals(bodyOf(n)) && view.getTag().orElse("").equals("tag-" + n % 3)
            && keys.size() == 1 && keys.contains("key-" + n) && "java".equals(view.getProperties().get("sdk"));
        say("\"e\":\"got\",\"via\":\"" + via + "\",\"n\":" + n + ",\"id\":" + quote(view.getMessageId().toString())
            + ",\"attempt\":" + view.getDeliveryAttempt() + ",\"good\":" + good);
    }

    private static String bodyOf(int n) {
        String text = "message " + n + " ";
        return text + ".".repeat(256 - text.length());
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(Math.max(0, ms));
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private static String quote(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ") + '"';
    }

    private static synchronized void say(String fields) {
        System.out.println("{" + fields + ",\"t\":" + System.currentTimeMillis() + "}");
        System.out.flush();
    }
}
