import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * The unmodified gRPC client under the clock: {@code java GrpcBench endpoint= topic= group= [senders=8] [receivers=4] [batch=32] [bytes=1024]
 * [seconds=10] [warm=3]}; the last line of standard output is JSON.
 *
 * <p>Senders send for so long, each as soon as its last call is done; then receivers take what was sent, each call up to {@code batch}
 * messages, all of them acknowledged before the next call, for as long at most. A few seconds of both go before, uncounted.
 */
public final class GrpcBench {
    private static final Map<String, String> OPTIONS = new HashMap<>();

    private GrpcBench() {
    }

    /** One call of one worker; how many messages it moved. */
    private interface Call {
        int go() throws Exception;
    }

    public static void main(String[] arguments) {
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            OPTIONS.put(pair[0], pair[1]);
        }
        int code = 0;
        try {
            run();
        } catch (Throwable error) {
            error.printStackTrace();
            code = 1;
        }
        System.exit(code);
    }

    private static int number(String key, int otherwise) {
        return Integer.parseInt(OPTIONS.getOrDefault(key, Integer.toString(otherwise)));
    }

    private static void run() throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfiguration configuration = ClientConfiguration.newBuilder().setEndpoints(OPTIONS.get("endpoint"))
            .enableSsl(false).setRequestTimeout(Duration.ofSeconds(10)).build();
        String topic = OPTIONS.get("topic");
        byte[] body = new byte[number("bytes", 1024)];
        Arrays.fill(body, (byte) 'x');
        Producer producer = provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build();
        SimpleConsumer consumer = provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(OPTIONS.get("group")).setAwaitDuration(Duration.ofSeconds(1))
            .setSubscriptionExpressions(Collections.singletonMap(topic, new FilterExpression("*", FilterExpressionType.TAG)))
            .build();
        Call send = () -> {
            producer.send(provider.newMessageBuilder().setTopic(topic).setTag("tag").setBody(body).build());
            return 1;
        };
        Call receive = () -> {
            List<MessageView> messages = consumer.receive(number("batch", 32), Duration.ofSeconds(60));
            List<CompletableFuture<Void>> acknowledged = new ArrayList<>();
            for (MessageView message : messages) {
                acknowledged.add(consumer.ackAsync(message));
            }
            for (CompletableFuture<Void> one : acknowledged) {
                one.get();
            }
            return messages.size();
        };
        for (int call = 0; call < 4 * number("receivers", 4); call++) {
            receive.go();   // the group has its place in every queue from now on
        }
        phase(send, number("senders", 8), number("warm", 3), false);
        phase(receive, number("receivers", 4), 4 * number("warm", 3), true);
        double[] sent = phase(send, number("senders", 8), number("seconds", 10), false);
        double[] received = phase(receive, number("receivers", 4), number("seconds", 10), true);
        System.out.println("{\"sent\":" + (long) sent[0] + ",\"send_seconds\":" + sent[1]
            + ",\"received\":" + (long) received[0] + ",\"receive_seconds\":" + received[1] + "}");
    }

    /** Messages that were moved by so many threads, and how long it took; with {@code untilNone} a thread ends when a call moves none. */
    private static double[] phase(Call call, int threads, int seconds, boolean untilNone) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        long start = System.nanoTime();
        long end = start + seconds * 1_000_000_000L;
        List<Future<long[]>> running = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            running.add(pool.submit(() -> {
                long moved = 0;
                long last = start;
                while (System.nanoTime() < end) {
                    int now = call.go();
                    moved += now;
                    if (now > 0) {
                        last = System.nanoTime();
                    } else if (untilNone) {
                        break;
                    }
                }
                return new long[] {moved, last};
            }));
        }
        long moved = 0;
        long last = start + 1;
        for (Future<long[]> one : running) {
            moved += one.get()[0];
            last = Math.max(last, one.get()[1]);
        }
        pool.shutdown();
        return new double[] {moved, (last - start) / 1e9};
    }
}
