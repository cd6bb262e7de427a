import java.io.IOException;
import java.io.PrintStream;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/**
 * The unmodified gRPC client: {@code java Grpc simple|push endpoint= topic= group= out= [n=] [linger=0] [idle=8] [sub=*]}.
 *
 * <p>Ends linger seconds after n messages, or idle seconds after the last one. One JSON line per delivery goes to {@code out}: seq, attempt, keys, tags, body.
 */
public final class Grpc {
    private static final Map<String, String> OPTIONS = new HashMap<>();
    private static final AtomicLong TAKEN = new AtomicLong();
    private static final AtomicLong LAST = new AtomicLong();
    private static Writer out;

    private Grpc() {
    }

    private static String text(String key, String otherwise) {
        return OPTIONS.getOrDefault(key, otherwise);
    }

    private static boolean goOn() {
        boolean all = TAKEN.get() >= Long.parseLong(text("n", "1000000000"));
        long patience = Long.parseLong(all ? text("linger", "0") : text("idle", "8"));
        return System.nanoTime() - LAST.get() < patience * 1_000_000_000L;
    }

    public static void main(String[] arguments) {
        for (int i = 1; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            OPTIONS.put(pair[0], pair.length > 1 ? pair[1] : "1");
        }
        int code = 0;
        try (Writer file = Files.newBufferedWriter(Paths.get(text("out", "")), StandardCharsets.UTF_8,
                StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
            out = file;
            LAST.set(System.nanoTime());
            if (arguments[0].equals("simple")) {
                simple();
            } else {
                push();
            }
        } catch (Throwable error) {
            error.printStackTrace();
            code = 1;
        }
        new PrintStream(System.out, true).println("{\"taken\":" + TAKEN.get() + "}");
        System.exit(code);
    }

    private static ClientConfiguration configuration() {
        return ClientConfiguration.newBuilder().setEndpoints(text("endpoint", "")).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(10)).build();
    }

    private static Map<String, FilterExpression> subscription() {
        return Collections.singletonMap(text("topic", ""), new FilterExpression(text("sub", "*"), FilterExpressionType.TAG));
    }

    private static void simple() throws Exception {
        SimpleConsumer consumer = ClientServiceProvider.loadService().newSimpleConsumerBuilder()
            .setClientConfiguration(configuration()).setConsumerGroup(text("group", ""))
            .setAwaitDuration(Duration.ofSeconds(5)).setSubscriptionExpressions(subscription()).build();
        LAST.set(System.nanoTime());
        while (goOn()) {
            List<MessageView> messages;
            try {
                messages = consumer.receive(32, Duration.ofSeconds(30));
            } catch (ClientException error) {
                System.err.println("receive: " + error);
                continue;
            }
            List<CompletableFuture<?>> acknowledged = new ArrayList<>();
            for (MessageView message : messages) {
                note(message);
                acknowledged.add(consumer.ackAsync(message));
            }
            for (CompletableFuture<?> future : acknowledged) {
                future.get();
            }
        }
        consumer.close();
    }

    private static void push() throws Exception {
        PushConsumer consumer = ClientServiceProvider.loadService().newPushConsumerBuilder()
            .setClientConfiguration(configuration()).setConsumerGroup(text("group", "")).setConsumptionThreadCount(4)
            .setSubscriptionExpressions(subscription()).setMessageListener(message -> {
                note(message);
                return ConsumeResult.SUCCESS;
            }).build();
        LAST.set(System.nanoTime());
        while (goOn()) {
            Thread.sleep(20);
        }
        consumer.close();
    }

    private static void note(MessageView message) {
        String line = "{\"seq\":" + message.getProperties().get("seq") + ",\"attempt\":" + message.getDeliveryAttempt()
            + ",\"topic\":\"" + message.getTopic() + "\",\"message_id\":\"" + message.getMessageId()
            + "\",\"keys\":\"" + String.join(" ", message.getKeys()) + "\",\"tags\":\"" + message.getTag().orElse("")
            + "\",\"properties\":" + message.getProperties().size()
            + ",\"body\":\"" + StandardCharsets.UTF_8.decode(message.getBody()) + "\"}\n";
        synchronized (out) {
            try {
                out.write(line);
                out.flush();
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
        TAKEN.incrementAndGet();
        LAST.set(System.nanoTime());
    }
}
